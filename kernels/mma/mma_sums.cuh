// What a warp of the mma variant adds products to: the tile's sums, or those of a part along k, which it then adds to
// the tile's.
#pragma once
#include "mma/mma_plan.h"
#include "scales.h"

namespace moetune {

template <class Kernel>
struct MmaKeptSums {
  typename Kernel::Accumulators& sum;

  __forceinline__ MmaKeptSums(typename Kernel::Accumulators& of_tile, const auto&, int /*slot*/, int /*m0*/, int /*n0*/)
      : sum(of_tile) {}
  __forceinline__ auto& products() { return sum; }
  __forceinline__ void read_scales(int /*stage*/) {}
};

// Each part begins with zeros. Where `scaled`, it is multiplied by the scale of its row of X and of its block of W.
template <class Kernel>
struct MmaPromotedSums {
  using Accumulators = typename Kernel::Accumulators;
  static constexpr int m_tiles = Kernel::warp_m / 16, n_tiles = Kernel::warp_n / 8;
  static constexpr bool scaled = Kernel::AfterStage::scaled;
  static constexpr int per_output = Kernel::Function::columns_per_output;
  static constexpr int parts = Kernel::problem.scale_parts, width = Kernel::block_n / parts;  // columns of a part
  static constexpr int of_warp = width < Kernel::warp_n ? width : Kernel::warp_n;             // of these in a warp
  static constexpr int blocks_of_tile = parts * w_blocks(Kernel::block_n, per_output);
  static constexpr int blocks = Kernel::warp_n / of_warp * w_blocks(Kernel::warp_n, per_output);

  Accumulators& sum;
  Accumulators part = {};
  const typename Kernel::Shared& shared;
  // The thread's first in the tile; the warp's first, from where the first block of W begins. With parts kScaleBlock
  // for each scale before the warp's.
  int row, column;
  float x[m_tiles][2], w[blocks];

  __forceinline__ MmaPromotedSums(Accumulators& of_tile, const typename Kernel::Shared& memory, int slot, int m0,
                                  int n0)
      : sum(of_tile), shared(memory), row(m0 + threadIdx.x % 32 / 4) {
    column = parts > 1                               ? n0 / width * 2 * kScaleBlock
             : blocks_of_tile == 1 || per_output > 1 ? 0
                                                     : memory.tiles()[slot].column % kScaleBlock + n0;
  }
  __forceinline__ Accumulators& products() { return part; }

  // Before the barrier behind which the stage may be overwritten.
  __forceinline__ void read_scales(int stage) {
    if constexpr (scaled) {
      const float* const from = shared.scales(stage);
#pragma unroll
      for (int i = 0; i < m_tiles; ++i) x[i][0] = from[row + i * 16], x[i][1] = from[row + i * 16 + 8];
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        w[b] = from[Kernel::block_m + (blocks_of_tile == 1 ? 0 : min(column / kScaleBlock + b, blocks_of_tile - 1))];
    }
  }
  __forceinline__ void promote() {
#pragma unroll
    for (int j = 0; j < n_tiles; ++j) {
      float of_block = w[0];
#pragma unroll
      for (int b = 1; b < blocks; ++b)
        if (per_output > 1 ? j * 8 / of_warp * 2 + j % 2 == b : column % kScaleBlock + j * 8 >= b * kScaleBlock)
          of_block = w[b];
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sum[i][j][c] += scaled ? part[i][j][c] * (x[i][c / 2] * of_block) : part[i][j][c];
          part[i][j][c] = 0;
        }
    }
  }
};

}  // namespace moetune
