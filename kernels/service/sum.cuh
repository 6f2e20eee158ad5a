// Adds up the rows of a token's slots, [tokens, top_k, n], as the last launch of a layer.
#pragma once
#include "service/finish.cuh"
#include "service/warp.cuh"

namespace moetune {

// `count` neighbours are loaded and stored at once; they divide n. Sums are in fp32, in the order of slots, and rounded
// once. One block a token.
template <int count, class Element>
__device__ __forceinline__ void add_slots(Element* sum, const Element* y, int tokens, int top_k, long long n) {
  using Part = Vector<Element, count>;
  const int parts = static_cast<int>(n / count);
  for (long long token = blockIdx.x; token < tokens; token += gridDim.x)
    for (int i = threadIdx.x; i < parts; i += blockDim.x) {
      const auto* const from = reinterpret_cast<const Part*>(y) + token * top_k * parts + i;
      float total[count] = {};
#pragma unroll 8
      for (int slot = 0; slot < top_k; ++slot) {
        const Part part = from[static_cast<long long>(slot) * parts];
        for (int j = 0; j < count; ++j) total[j] += to_float(part.of[j]);
      }
      Part result;
      for (int j = 0; j < count; ++j) result.of[j] = round_to<Element>(total[j]);
      reinterpret_cast<Part*>(sum)[token * parts + i] = result;
    }
}

template <class Element>
__device__ __forceinline__ void add_any_slots(Element* sum, const Element* y, int tokens, int top_k, long long n) {
  follow_any();
  if (n % 8 == 0)
    add_slots<8>(sum, y, tokens, top_k, n);
  else
    add_slots<1>(sum, y, tokens, top_k, n);
}

}  // namespace moetune

extern "C" __global__ void __launch_bounds__(256)
    sum_bf16(moetune::bf16* sum, const moetune::bf16* y, int tokens, int top_k, long long n) {
  moetune::add_any_slots(sum, y, tokens, top_k, n);
}
extern "C" __global__ void __launch_bounds__(256)
    sum_fp16(moetune::fp16* sum, const moetune::fp16* y, int tokens, int top_k, long long n) {
  moetune::add_any_slots(sum, y, tokens, top_k, n);
}
