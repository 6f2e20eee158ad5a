// What the host and the mma kernel agree on: its knobs, how warps divide a tile, and where everything lies in a block's
// shared memory.
#pragma once
#include "problem.h"
#include "scales.h"

namespace moetune {

/// A candidate of the variant. `split` is the number of pieces along k of the last tiles.
struct MmaKnobs {
  int block_m = 0, block_n = 0, block_k = 0, warps = 0, stages = 0;
  Raster raster = Raster::n;
  int group = 1;
  int split = 1;
};

/// How a block's warps divide its tile: m * n = warps, each with a multiple of 16 x 16. Zeros where no grid fits.
struct WarpGrid {
  int m = 0, n = 0;
  constexpr bool operator==(const WarpGrid&) const = default;
};
/// The grid for which warps read the least shared memory.
constexpr WarpGrid warp_grid(int block_m, int block_n, int warps) {
  WarpGrid best;
  int best_reads = 0;
  for (int m = 1; m <= warps; m *= 2) {
    const int n = warps / m;
    if (block_m % (16 * m) != 0 || block_n % (16 * n) != 0) continue;
    const int reads = block_m / m + block_n / n;  // rows of fragments that a warp loads for each step along k
    if (best.m == 0 || reads < best_reads) best = {m, n}, best_reads = reads;
  }
  return best;
}
constexpr WarpGrid warp_grid(const MmaKnobs& k) { return warp_grid(k.block_m, k.block_n, k.warps); }

/// A thread's registers for fp32 sums, twice as many where they are promoted, and fragments (two sets of X and W).
constexpr int mma_registers(const MmaKnobs& k, bool promotes = false) {
  const WarpGrid grid = warp_grid(k);
  const int m = k.block_m / grid.m, n = k.block_n / grid.n;
  return m * n / 32 * (promotes ? 2 : 1) + 2 * (m / 16 * 4 + n / 16 * 4);
}

/// Tiles under way. The loader writes one when it begins it, the epilogue reads it when it is multiplied; the loader is
/// at most stages - 1 steps ahead, so that eight slots are enough.
constexpr int kMmaTileSlots = 8;
/// Elements from one staged row to the next: the pad spreads them over the banks.
constexpr int mma_staging_pitch(const MmaKnobs& k) { return k.block_n / warp_grid(k).n + 8; }

/// Offsets in a block's shared memory, in bytes.
struct MmaLayout {
  int x = 0, w = 0;   // [stages][block_m or block_n][block_k] elements, or [stages][planes][block_k][..]
  int weights = 0;    // [stages][block_k] of rows of X
  int scales = 0;     // [stages or kMmaTileSlots] of X, then of W
  int staging = 0;    // [warps][16][mma_staging_pitch] elements of Y, of 16 bits; or a QuantisedTile
  int tiles = 0;      // [kMmaTileSlots]; rows = 0 ends them
  int scheduler = 0;  // needed once a tile, so not in registers
  int bytes = 0;      // of all
};
constexpr MmaLayout mma_layout(const MmaKnobs& k, const KernelProblem& p) {
  constexpr int align = 256;  // a swizzled row never crosses it
  const Extent swizzled = {1, align};
  SharedMemory memory;
  MmaLayout l;
  l.x = memory.add(swizzled, k.stages * bytes_of(k.block_m * k.block_k, p.x_stage_bits));
  l.w = memory.add(swizzled, k.stages * bytes_of(k.block_n * k.block_k, p.w_stage_bits));
  l.staging = p.quantises() ? memory.add({quantised_tile_bytes(k.block_m, warp_grid(k).n), 16}, 1)
                            : memory.add({2, 2}, k.warps * 16 * mma_staging_pitch(k));
  l.tiles = memory.add(p.sums_rows() ? extent<TileOverRows>() : extent<Tile>(), kMmaTileSlots);
  l.scheduler = memory.add(p.sums_rows() ? extent<GridWalk<GridInOrder>>() : extent<Walk<ExpertsInOrder>>(), 1);
  if (p.weighs_x) l.weights = memory.add({sizeof(float), 16}, k.stages * k.block_k);
  if (const int bytes = p.x_scale_bytes + p.w_scale_bytes; bytes > 0)
    l.scales = memory.add({bytes, 16}, p.scales_at_end ? kMmaTileSlots : k.stages);
  l.bytes = round_up(memory.end, align);
  return l;
}

}  // namespace moetune
