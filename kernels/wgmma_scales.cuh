// The role of scales where tensor copies load X and W: a warp of the producer copies the scales of each stage. Where
// cp.async loads X or W, the threads that issue it copy scales too.
#pragma once
#include "epilogue.cuh"
#include "wgmma_tiles.cuh"

namespace moetune {

template <class Block>
struct WgmmaScales {
  // All lanes of the warp call it.
  static __forceinline__ void load_all(const Block& block) {
    typename Block::Slot slot;
    typename Block::Stage stage;
    typename Block::X::Scales::template Loader<Block, 32> x;
    typename Block::W::Scales::template Loader<Block, 32> w;
    while (true) {
      const auto tile = WgmmaTiles<Block>::take(block, slot);
      if (tile.expert < 0) break;
      const Steps steps = block.steps_of(tile);
      const auto row_of_x = [&](int r) { return source_row<Block>(block.args, tile.row + r); };
      x.begin(block, tile, steps, row_of_x);
      w.begin(block, tile, steps, row_of_x);
#pragma unroll 1
      for (int k = steps.first; k < steps.end; ++k, stage.advance()) {
        barrier_wait(block.empty(stage.index), stage.parity ^ 1);
        w.copy(block, tile, stage.index, k * Block::block_k);
        x.copy(block, tile, stage.index, k * Block::block_k);
        barrier_arrive_after_copies(__shfl_sync(~0u, block.full(stage.index), 0));
      }
    }
  }
};

}  // namespace moetune
