// The plain variant: CUDA cores, one shared-memory tile, every access checked. Obviously right, from sm_75 on.
#pragma once
#include "epilogue.cuh"
#include "simt/simt_plan.h"

namespace moetune {

// Rows and depth of one expert's product. With k ragged, X and W have a row for each step along k.
template <class Config>
struct SimtExpert {
  using X = typename Config::X;
  using W = typename Config::W;
  using Function = typename Config::Function;
  using Result = typename Function::Result;
  static constexpr bool ragged_k = Config::problem.x_mn_major, quantises = sizeof(Result) == 1;
  const Args& args;
  int expert, first_row, rows;  // of expert order

  // None where an expert without rows adds nothing to Y.
  __forceinline__ int m() const {
    if (Config::problem.accumulates && rows == 0) return 0;
    return ragged_k ? static_cast<int>(args.m) : rows;
  }
  __forceinline__ long long k() const { return ragged_k ? rows : args.k; }
  __forceinline__ float x(int row, long long depth) const {
    if constexpr (!ragged_k) return element<X>(args.x, source_row<Config>(args, first_row + row), depth, args.k);
    const int in_order = first_row + static_cast<int>(depth);
    const float value = element<X>(args.x, source_row<Config>(args, in_order), row, args.m);
    if constexpr (Config::problem.weighs_x)
      return to_float(round_to<typename X::Stage>(value * args.topk_weights[args.gather_indices[in_order]]));
    return value;
  }
  __forceinline__ float w(long long column, long long depth) const {
    if constexpr (ragged_k)
      return element<W>(args.w, memory_row<Config::problem.w_rows>(args, first_row + static_cast<int>(depth)), column,
                        args.n);
    if constexpr (Config::problem.w_mn_major) return element<W>(args.w, expert * args.k + depth, column, args.n);
    return element<W>(args.w, expert * args.n + w_row<Config>(args, column), depth, args.k);
  }
  __forceinline__ Result* y(int row) const {
    const long long target = ragged_k ? expert * args.m + row : target_row<Config>(args, first_row + row);
    return static_cast<Result*>(args.y) + target * y_columns<Config>(args);
  }
  __forceinline__ void store_scale(int row, long long block, float scale) const {
    args.y_scales[target_row<Config>(args, first_row + row) * args.y_scale_row + block * args.y_scale_step] = scale;
  }
  static __forceinline__ void store(Result& y, float value) {
    y = round_to<Result>(Config::problem.accumulates ? to_float(y) + value : value);
  }
  __forceinline__ RowWeight<Config> weight(int row) const {
    if constexpr (ragged_k) return round_to<RowWeight<Config>>(1.0f);
    return row_weight<Config>(args, first_row + row);
  }

 private:
  // An element of an operand's matrix of so many columns.
  template <class Type>
  __forceinline__ float element(const void* matrix, long long row, long long column, long long columns) const {
    const auto* elements = static_cast<const typename Type::Memory*>(matrix);
    return Type::Transform::template value<typename Type::Scales>(args, element_at(elements, row * columns + column),
                                                                  row, column);
  }
};

// The scales of a thread's four rows, of a quantised Y. Two warps have the columns of each.
template <class Config>
__forceinline__ void find_scales(const float (&sum)[4][4], float (&scale)[4]) {
  static_assert(Config::knobs.block_n == 2 * kScaleBlock && Config::Function::columns_per_output == 2,
                "a tile has the gates and ups of each scale");
  __shared__ float most[2][Config::knobs.block_m];
  const int warp = threadIdx.x / 32, first = warp / 2 * 4;
  for (int i = 0; i < 4; ++i) {
    float largest = kMinLargest;
    for (int j = 0; j < 4; j += 2) largest = fmaxf(largest, fabsf(Config::Function::value(&sum[i][j], {})));
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    if (threadIdx.x % 32 == 0) most[warp % 2][first + i] = largest;
  }
  __syncthreads();
  for (int i = 0; i < 4; ++i) scale[i] = fmaxf(most[0][first + i], most[1][first + i]) / kMaxFp8;
}

template <class Config>
__device__ void simt(const Args& args) {
  constexpr SimtKnobs knobs = Config::knobs;
  constexpr int block_m = knobs.block_m, block_n = knobs.block_n, block_k = knobs.block_k;
  constexpr int columns = block_n / 4;  // threads across; each computes 4 x 4 elements
  constexpr int per_output = Config::Function::columns_per_output;
  using Expert = SimtExpert<Config>;
  constexpr int threads = simt_threads(knobs);

  __shared__ float x_tile[block_k][simt_pitch(block_m)];
  __shared__ float w_tile[block_k][simt_pitch(block_n)];

  const int n_tiles = static_cast<int>((args.n + block_n - 1) / block_n);
  const int thread_m = threadIdx.x / columns, thread_n = threadIdx.x % columns;
  static_assert(per_output == 1 || columns % 8 == 0, "a thread has all sums of columns that are combined");
  // This thread's column `j` of four in the tile.
  const auto column_of = [&](int j) {
    if constexpr (per_output == 1) return thread_n + j * columns;
    return thread_n / 8 * 16 + thread_n % 8 + j % 2 * 8 + j / 2 * 2 * columns;
  };
  // Neighbouring threads load neighbouring elements.
  const auto place = [](int i, int block, bool across) {
    return across ? int2{i % block, i / block} : int2{i / block_k, i % block_k};
  };

  int first_tile = 0, first_row = 0;  // of the expert
  long long tile = blockIdx.x;
  for (int expert = 0; expert < args.experts; ++expert) {
    const Expert e = {args, expert, first_row, args.m_sizes[expert]};
    const int m = e.m();
    const int tiles = (m + block_m - 1) / block_m * n_tiles;
    for (; tile < first_tile + tiles; tile += gridDim.x) {
      const int m_first = static_cast<int>(tile - first_tile) / n_tiles * block_m;
      const long long n_first = static_cast<long long>((tile - first_tile) % n_tiles) * block_n;
      float sum[4][4] = {};
      for (long long k_first = 0; k_first < e.k(); k_first += block_k) {
        for (int i = threadIdx.x; i < block_m * block_k; i += threads) {
          const int2 at = place(i, block_m, Config::problem.x_mn_major);
          const bool inside = m_first + at.x < m && k_first + at.y < e.k();
          x_tile[at.y][at.x] = inside ? e.x(m_first + at.x, k_first + at.y) : 0.0f;
        }
        for (int i = threadIdx.x; i < block_n * block_k; i += threads) {
          const int2 at = place(i, block_n, Config::problem.w_mn_major);
          const bool inside = n_first + at.x < args.n && k_first + at.y < e.k();
          w_tile[at.y][at.x] = inside ? e.w(n_first + at.x, k_first + at.y) : 0.0f;
        }
        __syncthreads();
        for (int depth = 0; depth < block_k; ++depth)
          for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) sum[i][j] += x_tile[depth][thread_m * 4 + i] * w_tile[depth][column_of(j)];
        __syncthreads();
      }
      float scale[4];
      if constexpr (Expert::quantises) find_scales<Config>(sum, scale);
      for (int i = 0; i < 4; ++i) {
        const int row = m_first + thread_m * 4 + i;
        if (row >= m) continue;
        const auto weight = e.weight(row);
        if constexpr (Expert::quantises)
          if (thread_n == 0) e.store_scale(row, n_first / block_n, scale[i]);
        auto* const y = e.y(row);
        for (int j = 0; j < 4; ++j) {
          const long long column = n_first + column_of(j);
          if constexpr (Config::problem.adds_bias) sum[i][j] += bias<Config>(args, expert, column);
          if constexpr (Config::problem.stores_h)
            if (j % 2 == 1 && column < args.n) {
              auto* const h = place_in_h<Config>(args, first_row + row, column - 8);
              e.store(h[0], sum[i][j - 1]), e.store(h[up_after_gate<Config>(args)], sum[i][j]);
            }
          const long long y_column = per_output == 1 ? column : column / 16 * 8 + column % 8;
          if (j % per_output == per_output - 1 && column < args.n)
            e.store(y[y_column],
                    Config::Function::value(&sum[i][j + 1 - per_output], weight) / (Expert::quantises ? scale[i] : 1));
        }
      }
    }
    first_tile += tiles;
    first_row += e.rows;
  }
}

}  // namespace moetune
