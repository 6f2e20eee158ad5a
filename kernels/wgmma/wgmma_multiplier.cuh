// The role of the multiplier: a warpgroup multiplies the stages of its tiles with wgmma and releases them.
#pragma once
#include "wgmma/epilogue/wgmma_direct.cuh"
#include "wgmma/wgmma_promote.cuh"
#include "wgmma/wgmma_registers.cuh"

namespace moetune {

template <class Block>
struct WgmmaMultiplier {
  using TheBlock = Block;
  using Tile = Block::Tile;
  using Slot = Block::Slot;
  using Sums = Block::Sums;
  using AfterStage = Block::AfterStage;
  static constexpr int block_k = Block::block_k, groups = Block::groups, row_bytes = Block::row_bytes;
  static constexpr int element_bytes = Block::element_bytes;
  static constexpr bool begins_with_y = WgmmaFirstSums<Block>::reads_y;
  // The last stage of a tile is released after its scales are read.
  static constexpr bool scales_at_end = Block::X::Scales::at_end;

  // One of so many threads reports to each block that a stage is read: each warp reads scales, or W, for itself.
  static constexpr int releasing = Block::warps_read ? 32 : 128;

  const WgmmaWarpgroup<Block>& group;
  Block::Stage stage;

  // With ping-pong, consumer 0 goes first.
  __forceinline__ void setup() {
    if (Block::alternates && group.consumer == 1) named_arrive(kTurnBarrier, 256);
  }
  // Whether the tile that is taken next is this warpgroup's; with ping-pong every other one is.
  __forceinline__ bool is_next(const Slot& slot) const {
    return !(Block::alternates && slot.index() % 2 != group.consumer);
  }
  // Skips the stages of another warpgroup's tile.
  __forceinline__ void skip(const Steps& steps) { stage.advance(steps.end - steps.first); }

  // Whether this warpgroup has rows of the tile.
  __forceinline__ bool is_busy(const Tile& tile) const {
    return Block::swapped ? tile.rows > 0 : tile.rows > group.first_group * kGroupRows;
  }
  // Multiplies the tile if the warpgroup is busy, else only releases stages. With ping-pong the two warpgroups multiply
  // alternately: each waits for the other's arrival before, and arrives for the other after.
  __forceinline__ void step(const Tile& tile, const Steps& steps, bool busy, Sums& sum) {
    if constexpr (Block::alternates) named_sync(kTurnBarrier + group.consumer, 256);
    if constexpr (AfterStage::restarts) {
      if constexpr (!begins_with_y) clear(sum);
    } else if constexpr (begins_with_y) {
      move<0, true>(sum);
      wgmma_fence();
    }
    const Operands first = first_operands();  // for each tile, or the compiler doesn't see that it is uniform
    const int count = steps.end - steps.first;
    [[maybe_unused]] int last = 0;
    if (!busy)
      multiply<0>(count, first, tile);
    else if constexpr (Block::w_in_registers)
      WgmmaFromRegisters<WgmmaMultiplier>{*this, first, __shfl_sync(~0u, tile.rows, 0)}.run(count);
    else if constexpr (AfterStage::restarts)
      last = WgmmaPromotion<WgmmaMultiplier>(*this, first, tile, sum).run(count);
    else if constexpr (Block::swapped && !begins_with_y)
      last = multiply_rows<8>(count, first, tile);
    else
      last = multiply<Block::width>(count, first, tile);
    constexpr bool scales_first = scales_at_end && RowFactors<Block>::in_place;
    if constexpr (!AfterStage::restarts && !scales_first) move<0, false>(sum);
    if constexpr (scales_at_end || AfterStage::restarts)
      if (busy) {
        if constexpr (scales_at_end) RowFactors<Block>(group, last).scale(sum);
        release(group.block.empty(last));
      }
    if constexpr (scales_first) move<0, false>(sum);
    if constexpr (Block::alternates) named_arrive(kTurnBarrier + 1 - group.consumer, 256);
  }

 private:
  // How an operand, `rows` rows of wgmma's M or N side, lies in a stage: in planes of row_columns along k or,
  // `across`, in planes of as many rows of the side, in which each row of memory is a step along k.
  template <int rows, bool is_across>
  struct Place {
    static constexpr bool across = is_across;
    static constexpr int plane_bytes = across ? block_k * row_bytes : 16;
    static constexpr int group_bytes = kGroupRows * (across ? block_k : Block::row_columns) * element_bytes;
    // A step is k_step elements. In units of 16 bytes: from a step to the next of its plane, and where step i is.
    static constexpr int step = (across ? Block::k_step * row_bytes : Block::k_step * element_bytes) / 16;
    static constexpr int begin(int i) { return across ? i * step : i / 4 * (rows * row_bytes / 16) + i % 4 * step; }
  };
  using A = Place<Block::height, Block::swapped ? Block::w_mn_major : Block::x_mn_major>;
  using B = Place<Block::width, Block::swapped ? Block::x_mn_major : Block::w_mn_major>;

  // Low halves of the first stage's descriptors. By a shuffle the compiler knows that they are uniform: they then take
  // uniform registers, and fewer instructions lie between two stages.
  struct Operands {
    unsigned a, b;
  };
  __forceinline__ Operands first_operands() const {
    const auto *a = Block::swapped ? group.block.w()[0] : group.block.x()[0],
               *b = Block::swapped ? group.block.x()[0] : group.block.w()[0];
    return {__shfl_sync(~0u, descriptor_low(shared_address(a) + group.first_group * A::group_bytes, A::plane_bytes), 0),
            __shfl_sync(~0u, descriptor_low(shared_address(b), B::plane_bytes), 0)};
  }

  // Frees a stage that this warpgroup has read, for the loader; in a cluster for the loaders of all blocks.
  static __forceinline__ void release(unsigned empty) {
    if constexpr (Block::warps_read) __syncwarp();  // all its lanes have read them
    if constexpr (Block::cluster == 1) {
      if (threadIdx.x % releasing == 0) barrier_arrive(empty);
    } else {
      if (threadIdx.x % releasing < Block::cluster) barrier_arrive_at(empty, threadIdx.x % releasing);
    }
  }

  template <class>
  friend struct WgmmaPromotion;
  template <class>
  friend struct WgmmaFromRegisters;

  // One group of a part of a stage, in row_columns along k, and part_width columns of the N side, the `side`th such,
  // from zero into a set of registers.
  template <int part, int g, int side, int set>
  __forceinline__ void issue_part(const Operands& first, int stage) const {
    wgmma<typename Block::Element, Block::part_width, 4, A::across, B::across, set>(
        first.a + stage * (Block::height * block_k * element_bytes / 16) + A::begin(part * 4) +
            g * (A::group_bytes / 16),
        first.b + stage * (Block::width * block_k * element_bytes / 16) + B::begin(part * 4) +
            side * (Block::part_width * row_bytes / 16),
        A::step, B::step, false);
  }

  // Multiplies `count` stages, `columns` of the N side; with 0 it only releases them. Where scales come at the end it
  // leaves the last stage unreleased, and returns its number.
  template <int columns>
  __forceinline__ int multiply(int count, const Operands& first, const Tile& tile) {
    // Stages still read when the next is multiplied.
    constexpr int behind = columns > 0 ? Block::knobs.in_flight : 0;
    constexpr bool keeps_last = columns > 0 && scales_at_end;
    [[maybe_unused]] int last = 0;
    // How many steps of one group are issued before the next group's. With ping-pong a warpgroup multiplies alone, and
    // a step that adds to the same sums as the step before it waits for them.
    constexpr int at_once = Block::alternates && groups > 1 ? 1 : 4;
    if constexpr (Block::alternates || Block::scatters) stage.index = __shfl_sync(~0u, stage.index, 0);
    unsigned before = 0;  // the empty barrier of the stage before
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      barrier_wait(group.block.full(stage.index), stage.parity);
      if constexpr (columns > 0) {
        if constexpr (Block::by_rows) fence_async_shared();
        Block::X::Transform::before_stage(group, tile, stage.index);
        Block::W::Transform::before_stage(group, tile, stage.index);
        const unsigned a = first.a + stage.index * (Block::height * block_k * element_bytes / 16);
        const unsigned b = first.b + stage.index * (Block::width * block_k * element_bytes / 16);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < block_k / Block::k_step; i += at_once)
          issue<0, columns, at_once>(a + A::begin(i), b + B::begin(i), i > 0 || begins_with_y || k > 0);
        wgmma_commit();
        wgmma_wait<behind>();
      } else {
        warpgroup_sync();  // without wgmma the warps would drift apart
      }
      const unsigned empty = group.block.empty(stage.index);
      if constexpr (keeps_last) last = stage.index;
      if (behind == 0) {
        if (!keeps_last || k + 1 < count) release(empty);
      } else if (k > 0) {
        release(before);
      }
      before = empty;
      stage.advance();
    }
    if constexpr (columns > 0) wgmma_wait<0>();
    if constexpr (behind > 0 && !keeps_last) release(before);
    return last;
  }

  // One or four steps along k of group g and of those after it.
  template <int g, int columns, int steps>
  static __forceinline__ void issue(unsigned a, unsigned b, bool accumulate) {
    if constexpr (g < groups) {
      wgmma<typename Block::Element, columns, steps, A::across, B::across, g>(a + g * (A::group_bytes / 16), b, A::step,
                                                                              B::step, accumulate);
      issue<g + 1, columns, steps>(a, b, accumulate);
    }
  }

  // Sums of group g and of those after it, to wgmma's registers or from them.
  template <int g, bool to_wgmma>
  static __forceinline__ void move(Sums& sum) {
    if constexpr (g < groups) {
      if constexpr (to_wgmma)
        write_sums<g>(sum[g]);
      else
        read_sums<g>(sum[g]);
      move<g + 1, to_wgmma>(sum);
    }
  }

  static __forceinline__ void clear(Sums& sum) {
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int i = 0; i < Block::width / 2; ++i) sum[g][i] = 0;
  }

  // Swapped, the N side is as wide as the tile has rows, in wgmma's steps of 8. Not where sums restart: the assembler
  // serialises wgmma where each of several loops reads its sums.
  template <int columns>
  __forceinline__ int multiply_rows(int count, const Operands& first, const Tile& tile) {
    if constexpr (columns < Block::width) {
      if (tile.rows > columns) return multiply_rows<columns + 8>(count, first, tile);
    }
    return multiply<columns>(count, first, tile);
  }
};

}  // namespace moetune
