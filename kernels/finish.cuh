// Second passes over a product's sums: adding up the slots of a token, the gradient of the top-k weights, and what
// kernels without a function of the result leave to others: bias, activation and weights.
#pragma once
#include "compare.cuh"
#include "numbers.cuh"

namespace moetune {

// row_of[slots[row]] = row. Rows past the last have a slot below 0, here and in weigh_rows.
__device__ __forceinline__ void invert(int* row_of, const int* slots, int rows) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
    if (slots[row] >= 0) row_of[slots[row]] = row;
}

// Four neighbours, or one.
template <int count>
struct Neighbours {
  float value[count];
};
template <int count>
__device__ __forceinline__ Neighbours<count> load_neighbours(const float* from) {
  if constexpr (count == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {{four.x, four.y, four.z, four.w}};
  } else {
    return {{*from}};
  }
}

// 0 none, 1 silu, 2 gelu, 3 gpt_oss: Activation in src/workload/product.h. Exact exponentials: references are made so.
__device__ __forceinline__ float activate(int activation, float gate, float up) {
  if (activation == 2) return gate * (1 + erff(gate * 0.70710678118654752f)) / 2 * up;
  if (activation == 1) return gate / (1 + expf(-gate)) * up;
  const float most = fminf(gate, 7);
  return most / (1 + expf(-1.702f * most)) * (fminf(fmaxf(up, -7), 7) + 1);
}

// `count` neighbours of a row of any element as they are loaded and stored at once.
template <class Element, int count>
struct alignas(sizeof(Element) * count) Vector {
  Element of[count];
};

// Rows of sums, [rows, n] in expert order, to rows out[to[i]], or i without `to`: with their expert's bias, gates and
// ups joined, weighted, rounded once. One block a row. With an activation rows of `out` have n / 2 columns; `count`
// divides them.
template <int count, class Out, class In, class Bias>
__device__ __forceinline__ void finish_rows(Out* out, const In* sums, const Bias* bias, const int* first_rows,
                                            int experts, int activation, bool interleaved, const int* to,
                                            RowWeights weights, int rows, long long n) {
  const long long columns = activation == 0 ? n : n / 2;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    int expert = 0;
    if (bias)
      for (int end = experts; end - expert > 1;) {
        const int middle = (expert + end) / 2;
        if (first_rows[middle] <= row) expert = middle; else end = middle;
      }
    const float weight = weight_of<Out>(weights, row);
    const In* const from = sums + row * n;
    const auto load = [&](long long column, float (&values)[count]) {
      const auto vector = *reinterpret_cast<const Vector<In, count>*>(from + column);
      for (int i = 0; i < count; ++i)
        values[i] = to_float(vector.of[i]) + (bias ? to_float(bias[expert * n + column + i]) : 0.0f);
    };
    for (long long j = threadIdx.x * count; j < columns; j += blockDim.x * count) {
      float values[2][count];
      load(activation != 0 && interleaved ? 2 * j : j, values[0]);
      if (activation != 0) load(interleaved ? 2 * j + count : j + columns, values[1]);
      Vector<Out, count> result;
      for (int i = 0; i < count; ++i) {
        float value = values[0][i];
        if (activation != 0) {
          const int at = 2 * i;  // of a gate, where gates and ups lie by turns
          value = activate(activation, interleaved ? values[at / count][at % count] : values[0][i],
                           interleaved ? values[(at + 1) / count][(at + 1) % count] : values[1][i]);
        }
        if (weights.weights && weights.rounded) value = to_float(round_to<Out>(value));
        result.of[i] = round_to<Out>(weights.weights ? value * weight : value);
      }
      *reinterpret_cast<Vector<Out, count>*>(out + (to ? to[row] : row) * columns + j) = result;
    }
  }
}

// out[token] = the sum over its slots, in their order, rounded once; slots with row_of < 0 are left out. One block a
// token.
template <int count, class Element>
__device__ __forceinline__ void sum_slots(Element* out, const float* sums, const int* row_of, int tokens, int top_k,
                                          long long width) {
  for (int token = blockIdx.x; token < tokens; token += gridDim.x)
    for (long long j = threadIdx.x * count; j < width; j += blockDim.x * count) {
      Neighbours<count> total = {};
#pragma unroll 4
      for (int slot = 0; slot < top_k; ++slot) {
        const int row = row_of[token * top_k + slot];
        if (row < 0) continue;
        const Neighbours<count> part = load_neighbours<count>(sums + row * width + j);
        for (int i = 0; i < count; ++i) total.value[i] += part.value[i];
      }
      for (int i = 0; i < count; ++i) out[token * width + j + i] = round_to<Element>(total.value[i]);
    }
}

// For each row: out = round(sums * weight), and gradient[slot] = the dot product of sums and x, added in an order that
// depends on the number of threads alone. One block a row, of at most 1024 threads.
template <class Element>
__device__ __forceinline__ void weigh_rows(Element* out, float* gradient, const float* sums, const Element* x,
                                           const int* slots, const float* weights, int rows, long long width) {
  __shared__ float of_warp[32];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const int slot = slots[row];
    if (slot < 0) continue;
    const float weight = weights[slot];
    float product = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      const float sum = sums[row * width + j];
      product += sum * to_float(x[row * width + j]);
      out[row * width + j] = round_to<Element>(sum * weight);
    }
    for (int step = 16; step > 0; step /= 2) product += __shfl_down_sync(~0u, product, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = product;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < blockDim.x / 32; ++warp) product += of_warp[warp];
      gradient[slot] = product;
    }
    __syncthreads();
  }
}

}  // namespace moetune
