// What the host and the producer of a warp-specialised block agree on, whichever instruction multiplies: how tiles are
// found and loaded, and the sizes of copies and slots. Knobs are those of a variant that has members of these names.
#pragma once
#include "args.h"
#include "problem.h"

namespace moetune {

enum class Schedule { cooperative, pingpong };  // consumers share a tile, or take alternate tiles
enum class Cluster { none, m, n };              // two neighbours along m share W, or along n share X
enum class Addressing { base, pointers };       // experts are offsets from one base, or have a pointer each
enum class TileOrder { fixed, dynamic };        // a block takes tiles by its number, or from a counter when it is free
enum class Pace { own, common };                // blocks begin their tiles independently, or all at the same time
enum class Gather { tiles, first };             // rows of X are gathered by the tile that reads them, or once before

constexpr int kSwizzleBytes = 128;   // a row of the swizzle
constexpr int kSwizzleColumns = 64;  // elements of Y in it
constexpr int kSwizzleAlign = 1024;  // bytes: eight rows of the swizzle
constexpr int kScalesAlign = 128;    // of a stage's scales: they may be copied as X and W are

/// Elements of X or W in a row of the swizzle.
constexpr int swizzle_columns(const KernelProblem& p) { return kSwizzleBytes * 8 / p.x_stage_bits; }

constexpr bool pingpong(const auto& k) { return k.schedule == Schedule::pingpong; }
constexpr bool by_pointers(const auto& k) { return k.addressing == Addressing::pointers; }
constexpr bool shares_last_round(const auto& k) { return k.split == 0; }

/// Whether X or W is copied row by row with cp.async, by all four warps of the producer.
constexpr bool copies_rows(const auto& k) { return !k.tma_x || !k.tma_w; }

/// Whether blocks wait for one another, so that all of them must run at once.
constexpr bool blocks_wait(const auto& k) {
  return k.gather == Gather::first || k.pace == Pace::common || shares_last_round(k);
}

/// Programmatic dependent launch (PDL): whether the kernel may begin before the launch before it has ended, whichever
/// that is, and waits for that at its own start: up of a layer.
constexpr bool pdl_waits_at_once(const KernelProblem& p) { return p.columns_per_output > 1; }
/// Whether it may begin before the launch that writes its X has ended: down of a layer, whose rows go where up's came
/// from. Until that launch has ended it reads no X, and touches neither Y nor what launches share.
constexpr bool pdl_waits_for_x(const auto& k, const KernelProblem& p) {
  return p.looks_up_rows() && !p.permutes_x() && !p.w_mn_major && !by_pointers(k) && !blocks_wait(k);
}

/// Whether a part of X is kept in L2 from one round of tiles to the next. Blocks must go through tiles in rounds.
constexpr bool keeps_x(const auto& k) {
  return k.pace == Pace::common && k.tma_x && !by_pointers(k) && k.cluster != Cluster::n;
}

/// Rows of X in one tensor copy, in whole groups of eight (the swizzle's). A large box needs fewer instructions, but
/// wastes loads past the expert's last row. So narrow and high tiles take large boxes, then small ones. Without small
/// ones both numbers are equal.
struct BoxRows {
  int large = 0, small = 0;
};
constexpr BoxRows x_boxes(const auto& k, const KernelProblem& p) {
  if (p.sums_rows()) {
    const int steps = k.cluster == Cluster::n ? k.block_k / 2 : k.block_k;
    return {steps, steps};
  }
  const bool one_size = k.cluster != Cluster::none || by_pointers(k) || pingpong(k);
  // Beside W of 4 bits X is a large part of what is copied.
  if (!one_size && p.w_in_registers()) return {k.block_m < 64 ? k.block_m : 64, 8};
  if (p.w_in_registers() && k.block_m <= 32 && k.cluster == Cluster::none) return {8, 8};
  if (!one_size && k.block_n <= 128 && k.block_m > 96) return {64, 16};
  const int half = k.cluster == Cluster::n ? k.block_m / 2 : k.block_m;
  for (int rows = half < 128 ? half : 128; rows > 8; rows -= 8)
    if (k.block_m % rows == 0) return {rows, rows};
  return {8, 8};
}
/// How many of each cover the rows of a tile.
constexpr BoxRows count_boxes(const BoxRows& box, int rows) {
  const int large = (rows + box.small - 1) / box.large, rest = rows - large * box.large + box.small - 1;
  return {large, (rest > 0 ? rest : 0) / box.small};
}
/// Rows of W in one tensor copy, and of Y: rows of a tile that are contiguous in a warpgroup's staging.
constexpr int w_box(const auto& k, const KernelProblem& p) {
  if (p.w_mn_major && !p.sums_rows()) return k.block_k;
  const int rows = p.sums_rows() ? k.block_k : k.block_n;
  return k.cluster == Cluster::m ? rows / 2 : rows;
}

/// Pairs of tensor maps that a block rewrites in turn. A map may be rewritten once the copies that read it have landed.
/// At least one stage is filled after each change, so that `stages` changes later the last of these copies has landed:
/// its stage has been emptied and filled again.
constexpr int map_turns(const auto& k) { return k.stages + 1; }

/// Slots for tiles that are found but not yet taken. Few, so that a block takes no tile long before it needs one. An
/// even number for ping-pong, whose consumers alternate. Tiles that sum over few rows end soon, so one more is found
/// ahead.
constexpr int tile_slots(const auto& k, bool sums_rows) {
  return pingpong(k) ? 4 : copies_rows(k) || (sums_rows && k.tiles == TileOrder::fixed) ? 2 : 1;
}
/// Whether a warp of the producer looks up where rows of Y go. With cp.async all its warps copy, so consumers look up.
constexpr bool looks_up_ahead(const auto& k) { return !copies_rows(k); }
constexpr int target_slots(const auto& k) { return looks_up_ahead(k) ? 2 : k.consumers; }

using Barrier = unsigned long long;  // an mbarrier

/// Where the rows of a tile go, and with what weight. full: they are looked up; consumers wait for it. empty: the tile
/// is stored; the warp that looks up waits for it.
template <class Weight, int block_m>
struct TargetSlot {
  Barrier full, empty;
  int row[block_m];
  Weight weight[block_m];
};

/// The tiles of a Config, and the state of the warp that finds them.
template <bool shares_last_round, bool pointers, bool keeps, bool sums_rows = false>
struct TileTypes {
  using Base =
      typename Choice<shares_last_round, PartialTile, typename Choice<sums_rows, TileOverRows, Tile>::type>::type;
  using Kept = typename Choice<keeps, TileWithKeptX<Base>, Base>::type;
  using type = typename Choice<pointers, TileWithPointers<Base>, Kept>::type;
};

}  // namespace moetune
