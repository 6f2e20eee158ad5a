// The role of the epilogue: a warpgroup stores the sums of its tiles in Y.
#pragma once
#include "producer/targets.cuh"
#include "wgmma/epilogue/wgmma_h.cuh"
#include "wgmma/epilogue/wgmma_held.cuh"
#include "wgmma/epilogue/wgmma_sums.cuh"

namespace moetune {

template <class Block>
struct WgmmaEpilogue {
  using Tile = Block::Tile;
  using Slot = Block::Slot;
  using Targets = TileTargets<Block>;

  const WgmmaWarpgroup<Block>& group;
  typename Choice<(Block::knobs.hold > 0), HoldRows<Block>, StoreEachTile<Block>>::type rows;

  // Before the tile that was taken last from `slot` is multiplied.
  __forceinline__ void setup(const Tile& tile, const Slot& slot) {
    rows.make_room(group, tile);
    Targets::prepare(group.block, tile, group.consumer, slot);
  }
  // Sets what its sums begin with.
  __forceinline__ void begin(const Tile& tile, bool busy, Block::Sums& sum) const {
    if (busy) WgmmaFirstSums<Block>::setup(group, tile, sum);
  }
  // After it is multiplied; `busy` where the warpgroup has rows of it.
  __forceinline__ void step(const Tile& tile, const Slot& slot, bool busy, const Block::Sums& sum) {
    if constexpr (Block::stores_sums || Block::makes_gates)
      if (!busy) return;
    Targets::wait(group.block, slot);
    const auto targets = Targets::of(group.block, group.consumer, slot);
    WgmmaSums<Block>::finish(group.block, tile, group.consumer, busy, sum, [&](const auto& sums) {
      if constexpr (Block::problem.adds_bias)
        store(tile, targets, with_bias(group, tile, sums));
      else
        store(tile, targets, sums);
    });
  }
  __forceinline__ void finish() { rows.finish(group); }

 private:
  template <class Sum>
  __forceinline__ void store(const Tile& tile, const RowTargets<Block>& targets, const Sum& sum) {
    if constexpr (Block::problem.stores_h) WgmmaH<Block>::store(group, tile, sum);
    rows.store(group, tile, targets, sum);
  }
};

}  // namespace moetune
