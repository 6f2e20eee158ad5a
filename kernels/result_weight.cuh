// Functions of the result that multiply its rows by their top-k weights.
#pragma once
#include "result.cuh"

namespace moetune {

// round(sum * weight): in fp32, rounded once.
template <class Element>
struct Weighted {
  using Result = Element;
  static constexpr int columns_per_output = 1;
  static constexpr bool weighs = true;
  using Weight = fp32;
  using Weights = float2;
  static __forceinline__ float value(const float* sums, Weight weight) { return sums[0] * weight.value; }
  static __forceinline__ unsigned pair(const float* low, const float* high, const Weights& weights) {
    return pack<Result>(low[0] * weights.x, high[0] * weights.y);
  }
};

// round(round(sum) * round(weight)).
template <class Element>
struct RoundedWeighted {
  using Result = Element;
  static constexpr int columns_per_output = 1;
  static constexpr bool weighs = true;
  using Weight = Result;
  using Weights = unsigned;
  static __forceinline__ float value(const float* sums, Weight weight) {
    return to_float(round_to<Result>(sums[0])) * to_float(weight);
  }
  static __forceinline__ unsigned pair(const float* low, const float* high, const Weights& weights) {
    return multiply_pair<Result>(pack<Result>(low[0], high[0]), weights);
  }
};

}  // namespace moetune
