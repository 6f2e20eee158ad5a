// Second passes over a product's fp32 sums: adding up the slots of a token, and the gradient of the top-k weights.
#pragma once
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
