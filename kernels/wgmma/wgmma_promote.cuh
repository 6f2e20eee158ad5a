// Sums that are promoted: wgmma starts each part of a stage from zero, in separate registers, and what it made is
// added to the tile's fp32 sums, times the scales of that part where these are of blocks. With in_flight=1 wgmma works
// in two sets of registers: it makes the next part in one while the other is added.
#pragma once
#include "scales.h"
#include "wgmma/wgmma_ptx.cuh"

namespace moetune {

// A thread's places in a tile: sums 4 v ... of group g are of rows m_row(g) and m_row(g) + 8 of wgmma's M side and of
// columns 8 v + n_column() and the next of its N side.
template <class Block>
struct WgmmaPlaces {
  static __forceinline__ int m_row(const WgmmaWarpgroup<Block>& group, int g) {
    return (group.first_group + g) * kGroupRows + static_cast<int>(threadIdx.x % 128) / 32 * 16 +
           static_cast<int>(threadIdx.x % 32) / 4;
  }
  static __forceinline__ int n_column() { return threadIdx.x % 4 * 2; }
};

// How a part is added to the sums. Factors are made once a tile; Scales are those of one unit, read before it is
// multiplied, and multiplied with each other after.

// sum += part.
template <class Block>
struct NoFactors {
  static constexpr bool reads_late = false;
  struct Scales {};
  __forceinline__ NoFactors(const WgmmaWarpgroup<Block>&, const typename Block::Tile&) {}
  __forceinline__ Scales read(int /*stage*/, int /*part*/, int /*g*/) const { return {}; }
  template <int size>
  __forceinline__ void add(const Scales&, const float (&part)[size], float (&sum)[size]) const {
#pragma unroll
    for (int i = 0; i < size; ++i) sum[i] += part[i];
  }
};

// sum += part * scale of the row of X * scale of the block of W, where X is on wgmma's M side.
template <class Block>
struct BlockFactors {
  static constexpr bool reads_late = false;
  static constexpr int per_output = Block::Function::columns_per_output, blocks = w_blocks(Block::block_n, per_output);
  static constexpr int step = Block::block_n & -Block::block_n;  // tiles begin at multiples of it
  struct Scales {
    float x[2], w[blocks];
  };
  const Block& block;
  int row;        // of the thread's first sum
  int first_end;  // columns of the tile in its first block

  __forceinline__ BlockFactors(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile)
      : block(group.block),
        row(WgmmaPlaces<Block>::m_row(group, 0)),
        first_end(kScaleBlock - tile.column % kScaleBlock) {
    asm volatile("" : "+r"(row), "+r"(first_end));  // or they would be found for each stage
  }
  __forceinline__ Scales read(int stage, int part, int g) const {
    const float* const x = reinterpret_cast<const float*>(block.x_scales(stage)) + part * Block::block_m + row;
    const float* const w = reinterpret_cast<const float*>(block.w_scales(stage)) + part * blocks;
    Scales scales = {{x[g * kGroupRows], x[g * kGroupRows + 8]}};
#pragma unroll
    for (int i = 0; i < blocks; ++i) scales.w[i] = w[i];
    return scales;
  }
  template <int size>
  __forceinline__ void add(const Scales& scales, const float (&part)[size], float (&sum)[size]) const {
#pragma unroll
    for (int v = 0; v < size / 4; ++v)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = v * 8 / step * step;
        float w = scales.w[column >= kScaleBlock ? 1 : 0];
        if (column > 0 && column < kScaleBlock && column >= first_end) w = scales.w[blocks > 1];
        if (blocks > 2 && column >= first_end + kScaleBlock) w = scales.w[blocks - 1];
        if constexpr (per_output > 1) w = scales.w[v % 2];
        sum[v * 4 + i] += part[v * 4 + i] * (scales.x[i / 2] * w);
      }
  }
};

// The same where W is on wgmma's M side: a group's rows are in one block, or its gates in one and its ups in another.
// Each thread has many rows of X, so it reads their scales as it adds.
template <class Block>
struct SwappedBlockFactors {
  static constexpr bool reads_late = true;
  static constexpr int per_output = Block::Function::columns_per_output, blocks = w_blocks(Block::block_n, per_output);
  struct Scales {
    float w[per_output];
    const float* x;
  };
  const Block& block;
  const int column, first_row;  // of W, the tile's first in its block and the warpgroup's

  __forceinline__ SwappedBlockFactors(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile)
      : block(group.block), column(tile.column % kScaleBlock), first_row(group.first_group * kGroupRows) {}
  __forceinline__ Scales read(int stage, int part, int g) const {
    const int of_w = blocks == 1 || per_output > 1 ? 0 : (column + first_row + g * kGroupRows) / kScaleBlock;
    const float* const w = reinterpret_cast<const float*>(block.w_scales(stage)) + part * blocks + of_w;
    const float* const x =
        reinterpret_cast<const float*>(block.x_scales(stage)) + part * Block::block_m + WgmmaPlaces<Block>::n_column();
    if constexpr (per_output > 1)
      return {{w[0], w[1]}, x};
    else
      return {{w[0]}, x};
  }
  template <int size>
  __forceinline__ void add(const Scales& scales, const float (&part)[size], float (&sum)[size]) const {
#pragma unroll
    for (int v = 0; v < size / 4; ++v) {
      const float2 two = *reinterpret_cast<const float2*>(scales.x + v * 8);
      float low[per_output], high[per_output];
#pragma unroll
      for (int j = 0; j < per_output; ++j) low[j] = two.x * scales.w[j], high[j] = two.y * scales.w[j];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = per_output > 1 ? i / 2 : 0;
        sum[v * 4 + i] += part[v * 4 + i] * (i % 2 ? high[j] : low[j]);
      }
    }
  }
};

template <class Block>
using WgmmaFactors =
    typename Choice<!Block::AfterStage::scaled, NoFactors<Block>,
                    typename Choice<Block::swapped, SwappedBlockFactors<Block>, BlockFactors<Block>>::type>::type;

// Scales of rows, which multiply the sums of a tile at its end; they lie beside its last stage. With in_place they are
// in wgmma's registers: products elsewhere need as many again, but with in_flight=1 the assembler would serialise
// wgmma.
template <class Block>
struct RowFactors {
  static constexpr bool in_place = !Block::AfterStage::restarts && Block::knobs.in_flight == 0;
  const float *down, *across;

  __forceinline__ RowFactors(const WgmmaWarpgroup<Block>& group, int stage) {
    const auto* const x = reinterpret_cast<const float*>(group.block.x_scales(stage));
    const auto* const w = reinterpret_cast<const float*>(group.block.w_scales(stage));
    down = (Block::swapped ? w : x) + WgmmaPlaces<Block>::m_row(group, 0);
    across = (Block::swapped ? x : w) + WgmmaPlaces<Block>::n_column();
  }
  template <int g = 0, int v = 0>
  __forceinline__ void scale(typename Block::Sums& sum) const {
    if constexpr (v < Block::width / 8) {
      if constexpr (v == 0) asm volatile("" ::: "memory");
      const float2 two = *reinterpret_cast<const float2*>(across + v * 8);
      const float low = down[g * kGroupRows], high = down[g * kGroupRows + 8];
      const float by[] = {low * two.x, low * two.y, high * two.x, high * two.y};
      if constexpr (in_place)
        multiply_sums<g, v * 4>(by);
      else
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[g][v * 4 + i] *= by[i];
      asm volatile("" ::: "memory");  // or all scales would be loaded first
      scale<g, v + 1>(sum);
    } else if constexpr (g + 1 < Block::groups) {
      scale<g + 1, 0>(sum);
    }
  }
};

// Multiplies the stages of a tile. A unit is what wgmma makes at a time: a part of kScaleBlock columns along k, of one
// group and part_width columns of the N side.
template <class Multiplier>
struct WgmmaPromotion {
  using Block = Multiplier::TheBlock;
  using Tile = Block::Tile;
  using Sums = Block::Sums;
  using Factors = WgmmaFactors<Block>;
  static constexpr int sides = Block::width / Block::part_width, in_part = Block::groups * sides;
  static constexpr int units = Block::halves * in_part;
  static constexpr bool ahead = Block::knobs.in_flight > 0;
  static constexpr int unrolled = Block::swapped || Block::consumers != 2 || units > 1 ? 1 : 4;  // or sums spill

  Multiplier& multiplier;
  const Multiplier::Operands& first;
  const Factors factors;
  Sums& sum;

  __forceinline__ WgmmaPromotion(Multiplier& m, const Multiplier::Operands& operands, const Tile& tile, Sums& s)
      : multiplier(m), first(operands), factors(m.group, tile), sum(s) {}

  // Leaves the last stage unreleased, and returns its number.
  __forceinline__ int run(int count) {
    if constexpr (ahead) return run_ahead(count);
    int last = 0;
#pragma unroll(unrolled)
    for (int k = 0; k < count; ++k) {
      last = multiplier.stage.index;
      wait_for_stage();
      multiply_units<0>(last, k + 1 < count);
      multiplier.stage.advance();
    }
    return last;
  }

 private:
  __forceinline__ void wait_for_stage() {
    barrier_wait(multiplier.group.block.full(multiplier.stage.index), multiplier.stage.parity);
    if constexpr (Block::by_rows) fence_async_shared();
  }
  __forceinline__ void release(int stage) const { multiplier.release(multiplier.group.block.empty(stage)); }

  template <int unit, int set>
  __forceinline__ void issue(int stage) const {
    wgmma_fence();
    multiplier.template issue_part<unit / in_part, unit / sides % Block::groups, unit % sides, set>(first, stage);
    wgmma_commit();
  }
  template <int unit, int set>
  __forceinline__ void add(const Factors::Scales& scales) {
    constexpr int size = Block::part_width / 2;
    float part[size];
    read_sums<set>(part);
    factors.add(scales, part,
                *reinterpret_cast<float(*)[size]>(sum[unit / sides % Block::groups] + unit % sides * size));
  }

  template <int unit>
  __forceinline__ void multiply_units(int stage, bool releases) {
    if constexpr (unit < units) {
      const auto scales = factors.read(stage, unit / in_part, unit / sides % Block::groups);
      issue<unit, 0>(stage);
      wgmma_wait<0>();
      constexpr bool last = unit + 1 == units;
      if (last && !Factors::reads_late && releases) release(stage);
      add<unit, 0>(scales);
      if (last && Factors::reads_late && releases) release(stage);
      multiply_units<unit + 1>(stage, releases);
    }
  }

  // Units alternate between two sets of registers, so a turn has an even number of them: one stage or two.
  static constexpr int turn = 2 * units;
  Factors::Scales scales_[2];
  int stage_of_[2];

  // Straight from unit to unit, the first issued before: the assembler must see that no set is written between.
  __forceinline__ int run_ahead(int count) {
    wait_for_stage();
    begin<0>();
    int left = count;
#pragma unroll 1
    for (; left > turn / units; left -= turn / units) go_on<1, turn>();
    if constexpr (turn > units) {
      if (left == 2) {
        go_on<1, turn - 1>();
        wgmma_wait<0>();
        return finish<turn - 1>(false);
      }
    }
    go_on<1, units - 1>();
    wgmma_wait<0>();
    return finish<units - 1>(false);
  }
  template <int i>
  __forceinline__ void begin() {
    const int stage = multiplier.stage.index;
    stage_of_[i % 2] = stage;
    scales_[i % 2] = factors.read(stage, i % units / in_part, i / sides % Block::groups);
    issue<i % units, i % 2>(stage);
    if constexpr (i % units == units - 1) multiplier.stage.advance();
  }
  // Issues units `from` to `to` of a turn, and adds the one before each.
  template <int from, int to>
  __forceinline__ void go_on() {
    if constexpr (from <= to) {
      if constexpr (from % units == 0) wait_for_stage();
      begin<from % turn>();
      wgmma_wait<1>();
      finish<from - 1>(true);
      go_on<from + 1, to>();
    }
  }
  // Adds what unit `i` of a turn made, and returns its stage.
  template <int i>
  __forceinline__ int finish(bool releases) {
    const int stage = stage_of_[i % 2];
    constexpr bool last = i % units == units - 1;
    if (last && !Factors::reads_late && releases) release(stage);
    add<i % units, i % 2>(scales_[i % 2]);
    if (last && Factors::reads_late && releases) release(stage);
    return stage;
  }
};

}  // namespace moetune
