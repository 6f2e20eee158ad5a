// The plain variant: CUDA cores, one shared-memory tile, every access checked. Obviously right, on any GPU.
#pragma once
#include "epilogue.cuh"
#include "simt_plan.h"

namespace moetune {

template <class Config>
__device__ void simt(const Args& args) {
  using Element = typename Config::Element;
  constexpr SimtKnobs knobs = Config::knobs;
  constexpr int block_m = knobs.block_m, block_n = knobs.block_n, block_k = knobs.block_k;
  constexpr int columns = block_n / 4;  // threads across; each computes 4 x 4 elements
  constexpr int threads = simt_threads(knobs);

  __shared__ float x_tile[block_k][simt_pitch(block_m)];
  __shared__ float w_tile[block_k][simt_pitch(block_n)];

  const Element* x = static_cast<const Element*>(args.x);
  const Element* w = static_cast<const Element*>(args.w);
  Element* y = static_cast<Element*>(args.y);
  const long long n = args.n, k = args.k;
  const int n_tiles = static_cast<int>((n + block_n - 1) / block_n);
  const int thread_m = threadIdx.x / columns, thread_n = threadIdx.x % columns;

  int first_tile = 0, first_row = 0;  // of the expert
  long long tile = blockIdx.x;
  for (int expert = 0; expert < args.experts; ++expert) {
    const int m = args.m_sizes[expert];
    const int tiles = (m + block_m - 1) / block_m * n_tiles;
    for (; tile < first_tile + tiles; tile += gridDim.x) {
      const int m_first = static_cast<int>(tile - first_tile) / n_tiles * block_m;
      const long long n_first = static_cast<long long>((tile - first_tile) % n_tiles) * block_n;
      float sum[4][4] = {};
      for (long long k_first = 0; k_first < k; k_first += block_k) {
        for (int i = threadIdx.x; i < block_m * block_k; i += threads) {
          const int row = m_first + i / block_k;
          const long long depth = k_first + i % block_k;
          const bool inside = row < m && depth < k;
          x_tile[i % block_k][i / block_k] =
              inside ? to_float(x[source_row<Config>(args, first_row + row) * k + depth]) : 0.0f;
        }
        for (int i = threadIdx.x; i < block_n * block_k; i += threads) {
          const long long column = n_first + i / block_k, depth = k_first + i % block_k;
          const bool inside = column < n && depth < k;
          w_tile[i % block_k][i / block_k] = inside ? to_float(w[(expert * n + column) * k + depth]) : 0.0f;
        }
        __syncthreads();
        for (int depth = 0; depth < block_k; ++depth)
          for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
              sum[i][j] += x_tile[depth][thread_m * 4 + i] * w_tile[depth][thread_n + j * columns];
        __syncthreads();
      }
      for (int i = 0; i < 4; ++i) {
        const int row = m_first + thread_m * 4 + i;
        if (row >= m) continue;
        const Element weight = row_weight<Config>(args, first_row + row);
        const long long target = target_row<Config>(args, first_row + row) * n;
        for (int j = 0; j < 4; ++j) {
          const long long column = n_first + thread_n + j * columns;
          if (column < n) y[target + column] = round_to<Element>(finish<Config>(sum[i][j], weight));
        }
      }
    }
    first_tile += tiles;
    first_row += m;
  }
}

}  // namespace moetune
