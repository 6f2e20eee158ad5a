// Finishes the sums of a warpgroup, stages them in shared memory and stores them in Y, each tile on its own.
#pragma once
#include "wgmma/epilogue/wgmma_gates.cuh"
#include "wgmma/epilogue/wgmma_quantise.cuh"

namespace moetune {

// Swapped tiles: sum[g][4 j ...] has columns 64 g + 16 warp + lane / 4 (and 8 on) of rows 8 j + lane % 4 * 2 (and 1
// on). The four warps of a warpgroup stage rows together. Where columns are combined, each warp has eight of Y.
template <class Block>
struct StagingOfColumns {
  using Tile = Block::Tile;
  using Element = Block::Result;
  using Function = Block::Function;
  using Weights = Function::Weights;
  using Store = WgmmaStore<Block>;
  using Targets = RowTargets<Block>;
  static constexpr Staging shape = Block::staging_shape;
  static constexpr int per_output = Function::columns_per_output,
                       group_columns = kGroupRows / per_output;  // of Y in a group

  // Stages kStoreRows rows, from `row` of the tile on, in rows `to` and on of the staging buffer.
  template <class Sum>
  static __forceinline__ void stage(const Targets& targets, Element* staging, int to, int row, const Sum& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Weights weights[2] = {};
    if constexpr (Block::weighs)
      for (int i = 0; i < 2; ++i)
        weights[i] = *reinterpret_cast<const Weights*>(targets.weight + row + i * 8 + lane % 4 * 2);
    sum.with([&](const auto& four) {
#pragma unroll
      for (int g = 0; g < Block::groups; ++g) {
        const float4 d[2] = {four(g, row / 8), four(g, row / 8 + 1)};
        if constexpr (per_output == 2) {
          const auto two = [&](int i) {
            const float low[] = {d[i].x, d[i].z}, high[] = {d[i].y, d[i].w};
            return Function::pair(low, high, weights[i]);
          };
          const unsigned place = Store::place(to + lane % 16, g * group_columns + warp * 8);
          stmatrix_x2_transposed(shared_address(staging) + 2 * place, two(0), two(1));
        } else {
          const auto two = [&](int i, int half) {
            return half == 0 ? Function::pair(&d[i].x, &d[i].y, weights[i])
                             : Function::pair(&d[i].z, &d[i].w, weights[i]);
          };
          const int r = to + lane / 16 * 8 + lane % 8, column = g * kGroupRows + warp * 16 + lane / 8 % 2 * 8;
          stmatrix_x4<true>(shared_address(staging) + 2 * Store::place(r, column), two(0, 0), two(0, 1), two(1, 0),
                            two(1, 1));
        }
      }
    });
  }

  template <class Sum>
  static __forceinline__ void store(const WgmmaWarpgroup<Block>& group, const Tile& tile, const Targets& targets,
                                    const Sum& sum) {
    Store::begin_tile();
#pragma unroll
    for (int first = 0; first < Block::block_m; first += shape.rows) {
      if (first >= tile.rows) break;
      // Two buffers in turn: a warp that passed the sync of one has read the other.
      Element* staging = group.staging() + first / shape.rows % 2 * shape.buffer;
      Store::begin_buffer(first);
#pragma unroll
      for (int r = 0; r < shape.rows && first + r < Block::block_m; r += kStoreRows) {
        if (shape.rows > 2 * kStoreRows && r >= tile.rows) break;  // of few rows, staging all takes no longer
        stage(targets, staging, r, first + r, sum);
      }
      Store::publish();
      warpgroup_sync();
      Store::template store<128>(group.block.args, tile, targets.row, staging, first,
                                 y_column<Block>(tile) + group.first_group * group_columns, shape.columns);
    }
  }
  static __forceinline__ void finish() { Store::template wait<128, 0>(); }
};

// A thread's four sums of each vector of eight columns that makes one of Y.
template <int per_output>
struct CombinedSums {
  float4 of[per_output];
};

// Other tiles: sum[g][4 j ...] has rows 64 g + 16 warp + lane / 4 (and 8 on) of columns 8 j + lane % 4 * 2 (and 1
// on). Each warp stages its own rows, kSwizzleColumns at a time.
template <class Block>
struct StagingOfRows {
  using Tile = Block::Tile;
  using Element = Block::Result;
  using Function = Block::Function;
  using Weights = Function::Weights;
  using Store = WgmmaStore<Block>;
  using Targets = RowTargets<Block>;
  using Group = WgmmaWarpgroup<Block>;
  static constexpr Staging shape = Block::staging_shape;
  static constexpr int per_output = Function::columns_per_output,
                       columns = Block::block_n / per_output;  // of Y in a tile

  // Stages kSwizzleColumns of the warp's 16 rows of group g, from column `from` of Y in the tile on, at row `to` and
  // column `column` of the staging buffer.
  template <class Sum>
  static __forceinline__ void stage(const Weights* weights, Element* staging, int to, int column, int g, int from,
                                    const Sum& sum) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < kSwizzleColumns && from + c < columns; c += 16) {
      sum.with([&](const auto& four) {
        const auto joined = [&](int v) {
          if constexpr (per_output == 1) return CombinedSums<1>{{four(g, v)}};
          if constexpr (per_output == 2) return CombinedSums<2>{{four(g, 2 * v), four(g, 2 * v + 1)}};
        };
        const CombinedSums<per_output> d[2] = {joined((from + c) / 8), joined((from + c) / 8 + 1)};
        const auto two = [&](int i, int half) {
          float low[per_output], high[per_output];
#pragma unroll
          for (int j = 0; j < per_output; ++j)
            low[j] = half == 0 ? d[i].of[j].x : d[i].of[j].z, high[j] = half == 0 ? d[i].of[j].y : d[i].of[j].w;
          return Function::pair(low, high, weights[half]);
        };
        stmatrix_x4<false>(shared_address(staging) + 2 * Store::place(to + lane % 16, column + c + lane / 16 * 8),
                           two(0, 0), two(0, 1), two(1, 0), two(1, 1));
      });
    }
  }

  // Each warp stores on its own.
  template <class Sum>
  static __forceinline__ void store(const Group& group, const Tile& tile, const Targets& targets, const Sum& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Element* buffer = group.staging() + warp * shape.buffer;
#pragma unroll
    for (int g = 0; g < Block::groups; ++g) {
      const int first = (group.first_group + g) * kGroupRows + warp * 16;
      if (first >= tile.rows) break;
      Weights weights[2] = {};
      if constexpr (Block::weighs)
        for (int i = 0; i < 2; ++i) weights[i] = both(targets.weight[first + lane / 4 + i * 8]);
#pragma unroll
      for (int from = 0; from < columns; from += kSwizzleColumns) {
        Store::template wait<32, 0>();
        __syncwarp();
        stage(weights, buffer, 0, 0, g, from, sum);
        Store::publish();
        __syncwarp();
        Store::template store<32>(group.block.args, tile, targets.row, buffer, first, y_column<Block>(tile) + from,
                                  min(kSwizzleColumns, columns - from));
      }
    }
  }
  static __forceinline__ void finish() { Store::template wait<32, 0>(); }
};

// The same where a warpgroup stages all its rows of a tile and then stores them together.
template <class Block>
struct StagingOfAllRows : StagingOfRows<Block> {
  using Rows = StagingOfRows<Block>;
  using typename Rows::Tile, typename Rows::Store, typename Rows::Targets, typename Rows::Group;

  template <class Sum>
  static __forceinline__ void store(const Group& group, const Tile& tile, const Targets& targets, const Sum& sum) {
    const int first = group.first_group * kGroupRows;
    if (first >= tile.rows) return;
    const typename Rows::Weights weights[2] = {};  // tensor copies store sums without weights
    Store::begin_buffer(0);
#pragma unroll
    for (int g = 0; g < Block::groups; ++g)
#pragma unroll
      for (int from = 0; from < Rows::columns; from += kSwizzleColumns)
        Rows::stage(weights, group.staging(), g * kGroupRows + threadIdx.x % 128 / 32 * 16, from, g, from, sum);
    Store::publish();
    warpgroup_sync();
    Store::template store<128>(group.block.args, tile, targets.row, group.staging(), first, y_column<Block>(tile),
                               Rows::columns);
  }
  static __forceinline__ void finish() { Store::template wait<128, 0>(); }
};

template <class Block>
using WgmmaStagingOfRows =
    typename Choice<Block::knobs.tma_store == TmaStore::boxes, StagingOfAllRows<Block>, StagingOfRows<Block>>::type;
template <class Block>
using WgmmaStaging = typename Choice<
    Block::stores_sums, StoresOfSums<Block>,
    typename Choice<Block::makes_gates, WgmmaGates<Block>,
                    typename Choice<Block::quantises, WgmmaQuantise<Block>,
                                    typename Choice<Block::swapped, StagingOfColumns<Block>,
                                                    WgmmaStagingOfRows<Block>>::type>::type>::type>::type;

}  // namespace moetune
