// Where a row of the result goes and what it is multiplied by.
#pragma once
#include "args.h"
#include "numbers.cuh"

namespace moetune {

// Row of X that row `row` of expert order reads.
template <class Config>
__device__ __forceinline__ long long source_row(const Args& args, int row) {
  if constexpr (Config::permute_x) return static_cast<unsigned>(args.gather_indices[row]) / static_cast<unsigned>(args.top_k);
  return row;
}

// Row of Y that row `row` of expert order is stored to.
template <class Config>
__device__ __forceinline__ long long target_row(const Args& args, int row) {
  if constexpr (Config::permute_y) return args.gather_indices[row];
  return row;
}

// The factor of that row, rounded as an operand is; 1 without the fusion.
template <class Config>
__device__ __forceinline__ float row_weight(const Args& args, int row) {
  if constexpr (Config::topk_weights)
    return to_float(round_to<typename Config::Element>(args.topk_weights[args.gather_indices[row]]));
  return 1.0f;
}

// The accumulator as it is stored: rounded once, and with weights multiplied and rounded again.
template <class Config>
__device__ __forceinline__ float finish(float accumulator, float weight) {
  if constexpr (Config::topk_weights) return to_float(round_to<typename Config::Element>(accumulator)) * weight;
  return accumulator;
}

// Two neighbours of a row or of a column, each with the weight of its row, in one register.
template <class Config>
__device__ __forceinline__ unsigned finish_pair(float low, float high, float low_weight, float high_weight) {
  using Element = typename Config::Element;
  const unsigned pair = pack<Element>(low, high);
  if constexpr (Config::topk_weights) {
    const Element first = {static_cast<unsigned short>(pair)}, second = {static_cast<unsigned short>(pair >> 16)};
    return pack<Element>(to_float(first) * low_weight, to_float(second) * high_weight);
  }
  return pair;
}

}  // namespace moetune
