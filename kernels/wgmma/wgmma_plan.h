// What the host and the wgmma kernel agree on: its knobs, what follows from them (registers, boxes, sums), and where
// everything lies in a block's shared memory.
#pragma once
#include "producer/producer_plan.h"
#include "scales.h"

namespace moetune {

enum class TmaStore { none, boxes, rows };  // Y leaves by 16-byte stores, tensor copies of tiles, or copies of rows

/// A candidate of the variant. `swap` puts the rows of X on the N side of wgmma. `split` is the number of pieces along
/// k of the last tiles, 0 where the last round is shared. `hold` is the number of rows of Y that are stored together, 0
/// for each tile on its own. With `mix` > 0 one block in so many takes the experts of fewest rows first.
struct WgmmaKnobs {
  int block_m = 0, block_n = 0, block_k = 0, stages = 0;
  Raster raster = Raster::n;
  int group = 1;
  int consumers = 1;
  Schedule schedule = Schedule::cooperative;
  bool swap = false;
  Cluster cluster = Cluster::none;
  int in_flight = 0;
  bool tma_x = false, tma_w = false;
  TmaStore tma_store = TmaStore::none;
  Addressing addressing = Addressing::base;
  TileOrder tiles = TileOrder::fixed;
  Pace pace = Pace::own;
  int split = 1;
  int hold = 0;
  Gather gather = Gather::tiles;
  int mix = 0;
};

constexpr int kStoreRows = 16;  // rows that stmatrix writes at a time
constexpr int kGroupRows = 64;  // M of one wgmma

/// Warpgroups that share a tile.
constexpr int warpgroups_a_tile(const WgmmaKnobs& k) { return pingpong(k) ? 1 : k.consumers; }
/// The sides of a tile for wgmma: M, of which each warpgroup has groups of kGroupRows, and N.
constexpr int m_side(const WgmmaKnobs& k) { return k.swap ? k.block_n : k.block_m; }
constexpr int n_side(const WgmmaKnobs& k) { return k.swap ? k.block_m : k.block_n; }
constexpr int groups(const WgmmaKnobs& k) { return m_side(k) / kGroupRows / warpgroups_a_tile(k); }
/// Columns of the N side that wgmma multiplies at a time. A quantised tile has all columns of a scale: where these are
/// on the N side, quarters leave registers for the tile's sums.
constexpr int part_side(const WgmmaKnobs& k, bool quantises) {
  return quantises && !k.swap ? n_side(k) / 4 : n_side(k);
}
/// fp32 sums of a consumer's thread; where they are promoted, with those of wgmma.
constexpr int sums(const WgmmaKnobs& k, bool promotes = false, bool quantises = false) {
  return (groups(k) * n_side(k) + (promotes ? 1 + k.in_flight : 0) * part_side(k, quantises)) / 2;
}

/// Registers a thread (setmaxnreg, multiples of 8). Together they are at most what the block starts with: 168 a thread
/// of three warpgroups, 128 of four, 96 of five. With one consumer they stay as they are.
struct Registers {
  int producer = 0, consumer = 0;
};
constexpr Registers registers(const WgmmaKnobs& k, bool scales = false) {
  if (k.consumers == 1) return {255, 255};
  const bool gathers_first = k.gather == Gather::first;  // its helpers load a row at once
  if (k.consumers == 4) return copies_rows(k) || gathers_first ? Registers{80, 96} : Registers{64, 104};
  if (k.consumers == 3) return copies_rows(k) || gathers_first ? Registers{80, 144} : Registers{56, 152};
  if (copies_rows(k)) return {88, 208};
  if (gathers_first) return {72, 216};
  const bool finds_with_more_state = k.mix > 0 || (by_pointers(k) && k.split != 1);
  return finds_with_more_state || scales ? Registers{56, 224} : Registers{40, 232};
}

/// An upper bound of a thread's sums: with more the assembler fails, or its kernels always spill. Of those with fewer
/// some spill too, which compiling them shows.
constexpr int max_sums(const WgmmaKnobs& k, const KernelProblem& p) {
  const int all = registers(k, p.x_scale_bytes > 0 && !copies_rows(k)).consumer;
  if (p.w_in_registers()) return all - 72;  // two sets of operands, and a stage's part of W
  return p.promotes ? all - 24 : k.consumers == 3 ? 96 : all - 40;
}

constexpr int y_box(const WgmmaKnobs& k) { return k.swap ? k.block_m : kGroupRows; }

/// Parts of a row's product with X that a tile of gates' gradients gives: one, or one for each warp where tiles are
/// swapped.
constexpr int gate_parts(const WgmmaKnobs& k) { return k.swap ? 4 * warpgroups_a_tile(k) : 1; }

/// Buffers in shared memory for rows of Y. For tensor copies a warpgroup stages its whole part of a tile: the copies go
/// on while the next tile is multiplied. Otherwise it stages a few rows at a time: swapped alternately in two buffers,
/// else in a buffer for each of its four warps. A buffer has planes of kSwizzleColumns in the swizzle of tensor copies
/// or, for copies of rows, rows padded so that eight of them use different banks.
struct Staging {
  int rows = 0, columns = 0, planes = 0;
  int pitch = 0;    // elements of a padded row
  int plane = 0;    // elements of a plane
  int buffer = 0;   // elements of a buffer
  int buffers = 0;  // of a warpgroup
};
constexpr Staging staging(const WgmmaKnobs& k, int per_output = 1) {
  Staging s;
  const bool tiles = k.tma_store == TmaStore::boxes;
  s.rows = tiles                      ? (k.swap ? k.block_m : groups(k) * kGroupRows)
           : k.hold > 0               ? k.hold
           : k.swap && groups(k) == 1 ? 2 * kStoreRows
                                      : kStoreRows;
  s.columns = k.swap ? groups(k) * kGroupRows / per_output : tiles ? k.block_n / per_output : kSwizzleColumns;
  s.planes = (s.columns + kSwizzleColumns - 1) / kSwizzleColumns;
  s.pitch = s.planes * kSwizzleColumns + 8;
  s.plane = s.rows * kSwizzleColumns;
  s.buffer = k.tma_store == TmaStore::rows ? s.rows * s.pitch : s.planes * s.plane;
  s.buffers = k.hold > 0 || tiles ? 1 : k.swap ? 2 : 4;
  return s;
}

/// Room for a swapped quantised tile, in each set of warpgroups that share tiles.
constexpr int quantised_bytes(const WgmmaKnobs& k) {
  return k.swap ? quantised_tile_bytes(k.block_m, 4 * warpgroups_a_tile(k)) : 0;
}

/// A tile whose rows wait in the staging buffer, from its row `first` on.
template <class TileType>
struct HeldTile {
  TileType tile;
  int first;
};

/// What a warpgroup holds: tiles, and where each of `rows` staged rows goes.
template <class TileType, int tiles_count, int rows>
struct HeldTiles {
  HeldTile<TileType> tiles[tiles_count];
  int target[rows];
};

/// Offsets in a block's shared memory, in bytes. Sizes of tiles are those of the plain structs above.
struct WgmmaLayout {
  int maps = 0;  // [2] TensorMap: of an expert's X and W, with addressing=pointers
  // [stages][block_k in rows of the swizzle][block_n or block_m][swizzle_columns] elements
  int w = 0, x = 0;
  int w_scales = 0, x_scales = 0;     // [stages][w_scale_bytes or x_scale_bytes]
  int staging = 0;                    // [consumers][buffers][buffer] elements
  int scheduler = 0;                  // state of the warp that finds tiles
  int m_sizes = 0;                    // [experts] rows, in the order in which the block goes through experts
  int tiles = 0;                      // [tile_slots]; expert < 0 ends them
  int full = 0, empty = 0;            // [stages] barriers
  int tile_full = 0, tile_empty = 0;  // [tile_slots] barriers
  int targets = 0;                    // [target_slots] TargetSlot, of target_bytes each
  int target_bytes = 0;
  int held = 0;  // [consumers] HeldTiles, of held_bytes each
  int held_bytes = 0;
  int last = 0;                   // [consumers] whether its piece of a tile was finished last
  int gathered = 0;               // [2][block_m] rows of X
  int expert_of = 0, row_of = 0;  // [experts] each, experts sorted by their rows
  int last_round = 0;
  int bytes = 0;  // of all
};

/// Bytes and alignment of the tiles of a candidate, plain and held.
struct TileExtents {
  Extent tile, held;
};
template <bool shares_last_round>
constexpr TileExtents tile_extents(const WgmmaKnobs& k, bool sums_rows) {
  if (sums_rows) return {extent<TileOverRows>(), extent<HeldTile<TileOverRows>>()};
  using Pointers = typename TileTypes<shares_last_round, true, false>::type;
  using Kept = typename TileTypes<shares_last_round, false, true>::type;
  using Plain = typename TileTypes<shares_last_round, false, false>::type;
  if (by_pointers(k)) return {extent<Pointers>(), extent<HeldTile<Pointers>>()};
  if (keeps_x(k)) return {extent<Kept>(), extent<HeldTile<Kept>>()};
  return {extent<Plain>(), extent<HeldTile<Plain>>()};
}

constexpr WgmmaLayout wgmma_layout(const WgmmaKnobs& k, const KernelProblem& p) {
  const Extent swizzled = {1, kSwizzleAlign};
  const Extent absent = {1, 1};  // a member that is left out takes a byte, as an empty struct would
  const TileExtents tile =
      shares_last_round(k) ? tile_extents<true>(k, p.sums_rows()) : tile_extents<false>(k, p.sums_rows());
  SharedMemory memory;
  WgmmaLayout l;
  if (by_pointers(k)) l.maps = memory.add(extent<TensorMap>(), 2);
  l.w = memory.add(swizzled, k.stages * p.w_stage_bytes(k.block_n, k.block_k));
  l.x = memory.add(swizzled, k.stages * bytes_of(k.block_m * k.block_k, p.x_stage_bits));
  if (p.w_scale_bytes > 0) l.w_scales = memory.add({p.w_scale_bytes, kScalesAlign}, k.stages);
  if (p.x_scale_bytes > 0) l.x_scales = memory.add({p.x_scale_bytes, kScalesAlign}, k.stages);
  if (p.quantises() && k.swap)
    l.staging = memory.add({quantised_bytes(k), 16}, k.consumers / warpgroups_a_tile(k));
  else if (!p.stores_sums() && !p.makes_gates && !p.quantises())
    l.staging = memory.add({2, kSwizzleAlign}, k.consumers * staging(k, p.columns_per_output).buffers *
                                                   staging(k, p.columns_per_output).buffer);
  const bool mixes = k.mix > 0;
  l.scheduler = memory.add(p.sums_rows() && mixes ? extent<GridWalk<GridFromBothEnds>>()
                           : p.sums_rows()        ? extent<GridWalk<GridByRows>>()
                           : mixes                ? extent<Walk<ExpertsFromBothEnds>>()
                                                  : extent<Walk<ExpertsInOrder>>(),
                           1);
  l.m_sizes = memory.add(extent<int>(), p.experts);
  l.tiles = memory.add(tile.tile, tile_slots(k, p.sums_rows()));
  l.full = memory.add(extent<Barrier>(), k.stages);
  l.empty = memory.add(extent<Barrier>(), k.stages);
  l.tile_full = memory.add(extent<Barrier>(), tile_slots(k, p.sums_rows()));
  l.tile_empty = memory.add(extent<Barrier>(), tile_slots(k, p.sums_rows()));
  if (p.looks_up_rows()) {
    SharedMemory slot;  // a TargetSlot
    slot.add(extent<Barrier>(), 2);
    slot.add(extent<int>(), k.block_m);
    slot.add({p.weight_bytes, p.weight_bytes}, k.block_m);
    l.target_bytes = round_up(slot.end, extent<Barrier>().align);
    l.targets = memory.add({l.target_bytes, extent<Barrier>().align}, target_slots(k));
  } else {
    memory.add(absent, 1);
  }
  if (k.hold > 0) {
    SharedMemory held;  // HeldTiles
    held.add(tile.held, k.hold / kStoreRows);
    held.add(extent<int>(), p.looks_up_rows() ? k.hold : 1);
    l.held_bytes = round_up(held.end, tile.held.align);
    l.held = memory.add({l.held_bytes, tile.held.align}, k.consumers);
  } else {
    memory.add(absent, 1);
  }
  l.last = memory.add(extent<int>(), k.consumers);
  const bool gathers = p.permutes_x() && k.gather == Gather::tiles;
  l.gathered = memory.add(gathers ? extent<int>() : absent, gathers ? 2 * k.block_m : 1);
  const bool sorts = mixes || p.sums_rows();
  l.expert_of = memory.add(sorts ? extent<int>() : absent, sorts ? p.experts : 1);
  l.row_of = l.expert_of;
  if (sorts) l.row_of = memory.add(extent<int>(), p.experts);
  l.last_round = memory.add(shares_last_round(k) ? extent<LastRound>() : absent, 1);
  l.bytes = round_up(memory.end, kSwizzleAlign);
  return l;
}

}  // namespace moetune
