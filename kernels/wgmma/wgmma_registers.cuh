// W in registers: a warpgroup widens its rows of a stage's W, 64 columns at a time, while wgmma multiplies those
// before.
#pragma once
#include "reordered.cuh"
#include "wgmma/wgmma_ptx.cuh"

namespace moetune {

// Multiplies the stages of a tile. A unit is what is widened at a time: a block of W, of 64 rows and 64 columns. Units
// use two sets of registers alternately, so a turn has an even number of them: one stage or two.
template <class Multiplier>
struct WgmmaFromRegisters {
  using Block = Multiplier::TheBlock;
  using W = RegisterW<typename Block::W>;
  using B = Multiplier::B;
  static constexpr int groups = Block::groups, units = Block::halves * groups;
  // There are two widths at least: without a branch the assembler would think that operands are written while wgmma
  // reads them, and serialise it (C7513).
  static constexpr int narrowest = Block::width == 16 ? 8 : 16;
  static constexpr int stage_step = Block::width * Block::block_k * Block::element_bytes / 16;
  static_assert(W::bytes == Block::problem.w_block_bytes, "the problem has the bytes of a block");

  Multiplier& multiplier;
  const Multiplier::Operands& first;
  const int rows;       // of the tile
  unsigned before = 0;  // the empty barrier of the stage before
  const W::Places places =
      W::places(shared_address(multiplier.group.block.w_block(0, multiplier.group.first_group, 0)), threadIdx.x % 128);

  __forceinline__ void run(int count) {
    int k = 0;
#pragma unroll 1
    while (true) {
      multiply_stage<0>(k);
      if (++k >= count) break;
      if constexpr (units % 2 == 1) {
        multiply_stage<1>(k);
        if (++k >= count) break;
      }
    }
    wgmma_wait<0>();
    Multiplier::release(before);
  }

 private:
  template <int first_set>
  __forceinline__ void multiply_stage(int k) {
    const Block& block = multiplier.group.block;
    const int stage = multiplier.stage.index;
    barrier_wait(block.full(stage), multiplier.stage.parity);
    if constexpr (Block::by_rows) fence_async_shared();
    multiply_units<first_set, 0>(read<0>(stage), stage, k > 0);
    before = block.empty(stage);
    multiplier.stage.advance();
  }

  template <int unit>
  __forceinline__ W::Packed read(int stage) const {
    constexpr int stage_bytes = Block::problem.w_stage_bytes(Block::block_n, Block::block_k);
    return W::read(places, stage * stage_bytes + (unit % groups * Block::halves + unit / groups) * W::bytes);
  }
  // The next unit is read before this one is widened.
  template <int first_set, int unit>
  __forceinline__ void multiply_units(const W::Packed& packed, int stage, bool accumulate) {
    constexpr int half = unit / groups, set = (first_set + unit) % 2;
    typename W::Packed next;
    if constexpr (unit + 1 < units) next = read<unit + 1>(stage);
    widen<set, 0>(packed);
    issue_rows<narrowest, unit % groups, set>(first.b + stage * stage_step + B::begin(half * W::steps),
                                              half > 0 || accumulate);
    wgmma_wait<1>();  // the unit before, whose registers come next
    if constexpr (unit == 0)
      if (accumulate) Multiplier::release(before);
    if constexpr (unit + 1 < units) multiply_units<first_set, unit + 1>(next, stage, accumulate);
  }

  template <int set, int step>
  static __forceinline__ void widen(const W::Packed& packed) {
    if constexpr (step < W::steps) {
      unsigned a[4];
      W::template unpack<step>(packed, a);
      write_operand<set, step>(a);
      widen<set, step + 1>(packed);
    }
  }

  // The N side is about as wide as the tile has rows. Widths branch here: were they loops, as where both operands lie
  // in shared memory, each would have operands of its own.
  template <int columns, int group, int set>
  __forceinline__ void issue_rows(unsigned b, bool accumulate) const {
    constexpr int next = columns < 16 ? 16 : columns + (columns < 64 ? 16 : 32);
    if constexpr (columns < Block::width)
      if (rows > columns) return issue_rows<(next < Block::width ? next : Block::width), group, set>(b, accumulate);
    wgmma_fence();
    wgmma_of_registers<typename Block::Element, columns, group, set>(b, B::step, accumulate);
    wgmma_commit();
  }
};

}  // namespace moetune
