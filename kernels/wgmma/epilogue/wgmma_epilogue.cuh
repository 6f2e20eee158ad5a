// The role of the epilogue: a warpgroup stores the sums of its tiles in Y.
#pragma once
#include "wgmma/epilogue/wgmma_held.cuh"
#include "wgmma/epilogue/wgmma_sums.cuh"
#include "wgmma/epilogue/wgmma_targets.cuh"

namespace moetune {

template <class Block>
struct WgmmaEpilogue {
  using Tile = Block::Tile;
  using Slot = Block::Slot;
  using Targets = WgmmaTargets<Block>;

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
    if constexpr (Block::stores_sums)
      if (!busy) return;
    Targets::wait(group.block, slot);
    const auto targets = Targets::of(group.block, group.consumer, slot);
    WgmmaSums<Block>::finish(group.block, tile, group.consumer, busy, sum,
                             [&](const auto& sums) {
                               if constexpr (Block::adds_bias)
                                 store(tile, targets, with_bias(group, tile, sums));
                               else
                                 store(tile, targets, sums);
                             });
  }
  __forceinline__ void finish() { rows.finish(group); }

 private:
  template <class Sum>
  __forceinline__ void store(const Tile& tile, const RowTargets<Block>& targets, const Sum& sum) {
    if constexpr (Block::stores_h) store_gates_and_ups(tile, sum);
    rows.store(group, tile, targets, sum);
  }
  // Sums of a tile in H, from registers: four lanes have eight neighbouring gates and their ups.
  template <class Sum>
  __forceinline__ void store_gates_and_ups(const Tile& tile, const Sum& sum) const {
    const Args& args = group.block.args;
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    sum.with([&](const auto& four) {
#pragma unroll
      for (int g = 0; g < Block::groups; ++g) {
        const int m = (group.first_group + g) * kGroupRows + warp * 16 + lane / 4;
#pragma unroll
        for (int v = 0; v < Block::width / 8; v += Block::swapped ? 1 : 2) {
          const int n = v * 8 + lane % 4 * 2;
          const float4 d = four(g, v), next = Block::swapped ? d : four(g, v + 1);
          if constexpr (Block::swapped) {
            if (n < tile.rows) store_h<Block, 1>(args, tile.row + n, tile.column + m, {d.x}, {d.z});
            if (n + 1 < tile.rows) store_h<Block, 1>(args, tile.row + n + 1, tile.column + m, {d.y}, {d.w});
          } else {
            if (m < tile.rows) store_h<Block, 2>(args, tile.row + m, tile.column + n, {d.x, d.y}, {next.x, next.y});
            if (m + 8 < tile.rows)
              store_h<Block, 2>(args, tile.row + m + 8, tile.column + n, {d.z, d.w}, {next.z, next.w});
          }
        }
      }
    });
  }
};

}  // namespace moetune
