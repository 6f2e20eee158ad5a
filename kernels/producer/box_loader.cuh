// The role of the loader where tensor copies load both X and W: one warp fills the ring of stages.
#pragma once
#include "producer/block_tiles.cuh"
#include "producer/boxes.cuh"

namespace moetune {

template <class Block>
struct BoxLoader {
  using Tile = Block::Tile;
  using Tiles = BlockTiles<Block>;

  // All lanes of the warp call it.
  static __forceinline__ void run(const Block& block) {
    const int rank = Block::rank();
    typename Block::Stage stage;
    typename Block::Slot slot;
    ExpertAddresses<Block> addresses;
    BlockPace<Block> pace;
    while (true) {
      const Tile tile = Tiles::take(block, slot);
      if (tile.expert < 0) break;
      if (slot.taken == 1) block.pdl_wait_for_x();
      const Steps steps = block.steps_of(tile);
      const StageBoxes<Block> boxes(block, addresses, tile, rank);
      addresses.follow(block, tile);
      if (elect_one()) pace.begin(block.args, tile);
      int k = steps.first;
      RowGather<Block>::load_first(boxes, steps, slot.taken == 1, k, stage);
#pragma unroll 1
      for (; k < steps.end; ++k, stage.advance()) {
        barrier_wait(block.empty(stage.index), stage.parity ^ 1);
        if (elect_one()) boxes.template issue<true, true>(stage.index, k * Block::block_k);
      }
      __syncwarp();
    }
    if (threadIdx.x == 0) Tiles::finish_loading(block);
  }
};

}  // namespace moetune
