// Y without staging: stores of fp32 results, which fill whole sectors of a row, and loads of the Y to which sums are
// added.
#pragma once
#include "wgmma/epilogue/wgmma_store.cuh"

namespace moetune {

// Where no columns are combined. Calls use(at, g, v, i) for each sum of this thread: `at` is the place in Y of element
// i of the four (g, v) (see OwnSums). Where tiles aren't swapped element i + 1 follows it, and i is always even.
// `row_at(r)` is row r of the tile in Y.
template <class Block, class RowAt, class Use>
__forceinline__ void for_places_in_y(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile,
                                     const RowAt& row_at, const Use& use) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < Block::groups; ++g)
#pragma unroll
    for (int v = 0; v < Block::width / 8; ++v)
#pragma unroll
      for (int i = 0; i < 4; i += Block::swapped ? 1 : 2) {
        const int m = (group.first_group + g) * kGroupRows + warp * 16 + lane / 4 + i / 2 * 8,
                  n = v * 8 + lane % 4 * 2 + i % 2;
        const int row = Block::swapped ? n : m;
        const long long column = tile.column + (Block::swapped ? m : n);
        if (row < tile.rows && column < y_columns<Block>(group.block.args)) use(row_at(row) + column, g, v, i);
      }
}

// Threads store or add their sums from registers: eight neighbours of a row are a sector.
template <class Block>
struct StoresOfSums {
  template <class Sum>
  static __forceinline__ void store(const WgmmaWarpgroup<Block>& group, const Block::Tile& tile,
                                    const RowTargets<Block>& targets, const Sum& sum) {
    const auto row_at = [&](int row) {
      return reinterpret_cast<float*>(row_of_y<Block>(group.block.args, tile, targets.row, row));
    };
    sum.with([&](const auto& four) {
      for_places_in_y<Block>(group, tile, row_at, [&](float* at, int g, int v, int i) {
        const float4 d = four(g, v);
        const float value = i == 0 ? d.x : i == 1 ? d.y : i == 2 ? d.z : d.w, next = i == 0 ? d.y : d.w;
        if constexpr (Block::swapped && Block::problem.accumulates)
          add_to_global(at, value);
        else if constexpr (Block::swapped)
          *at = value;
        else if constexpr (Block::problem.accumulates)
          add_to_global(at, value, next);
        else
          *reinterpret_cast<float2*>(at) = make_float2(value, next);
      });
    });
  }
  static __forceinline__ void finish() {}
};

// Sums begin with zeros.
template <class Block>
struct SumsFromZero {
  static constexpr bool reads_y = false;
  static __forceinline__ void setup(const auto&...) {}
};

// Sums begin with Y, which is so added in fp32 before they are rounded. All its loads are in flight at once, with
// ping-pong while the other warpgroup multiplies.
template <class Block>
struct SumsFromY {
  static constexpr bool reads_y = true;
  // Of a tile cut into pieces only the first begins with Y.
  static __forceinline__ void setup(const WgmmaWarpgroup<Block>& group, const Block::Tile& tile, Block::Sums& sum) {
    using Result = Block::Result;
#pragma unroll
    for (int g = 0; g < Block::groups; ++g)
#pragma unroll
      for (int i = 0; i < Block::width / 2; ++i) sum[g][i] = 0;
    if (tile.piece > 0 && tile.piece % Block::knobs.split != 0) return;
    const auto row_at = [&](int row) { return row_of_y<Block>(group.block.args, tile, nullptr, row); };
    for_places_in_y<Block>(group, tile, row_at, [&](const Result* at, int g, int v, int i) {
      if constexpr (Block::swapped) {
        sum[g][v * 4 + i] = to_float(*at);
      } else {
        const unsigned pair = *reinterpret_cast<const unsigned*>(at);
        sum[g][v * 4 + i] = to_float(Result{static_cast<unsigned short>(pair)});
        sum[g][v * 4 + i + 1] = to_float(Result{static_cast<unsigned short>(pair >> 16)});
      }
    });
  }
};

template <class Block>
using WgmmaFirstSums =
    typename Choice<Block::problem.accumulates && !Block::stores_sums, SumsFromY<Block>, SumsFromZero<Block>>::type;

}  // namespace moetune
