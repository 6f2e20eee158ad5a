// Functions of the result that make a column of Y from a gate and an up: act(gate) * up, in fp32, rounded once.
#pragma once
#include "activation.cuh"
#include "result.cuh"

namespace moetune {

// Each of these, as formulas.h has it, is called with both sums of an element of Y.
struct Silu {
  static __forceinline__ float of(float gate, float up) { return __fdividef(gate, 1 + __expf(-gate)) * up; }
};
struct Gelu {
  static __forceinline__ float of(float gate, float up) {
    return 0.5f * gate * (1 + erff(gate * static_cast<float>(kRootOfHalf))) * up;
  }
};
struct GptOss {
  static __forceinline__ float of(float gate, float up) {
    constexpr float slope = kGptOssSlope, limit = kGptOssLimit;
    gate = fminf(gate, limit);
    return __fdividef(gate, 1 + __expf(-slope * gate)) * (fminf(fmaxf(up, -limit), limit) + 1);
  }
};

// Of an fp8 Y the epilogue quantises (quantise.cuh), which sees a scale's columns together.
template <class Element, class Of>
struct Gated {
  using Result = Element;
  static constexpr int columns_per_output = 2;
  static constexpr bool weighs = false;
  using Weight = typename Identity<Element>::Weight;
  using Weights = unsigned;
  static __forceinline__ float value(const float* sums, Weight) { return Of::of(sums[0], sums[1]); }
  static __forceinline__ unsigned pair(const float* low, const float* high, const Weights&) {
    return pack<Result>(Of::of(low[0], low[1]), Of::of(high[0], high[1]));
  }
};

// The gradients of gates and ups: dH of sums, weighted if `weighs`, and H; and X again. An epilogue makes these, and
// with `dots` the products of sums and X.
template <class Element, int of_activation, bool of_weighted, bool of_dots>
struct GateGradient {
  using Result = Element;
  static constexpr int columns_per_output = 1;
  static constexpr Activation activation = static_cast<Activation>(of_activation);
  static constexpr bool weighs = of_weighted, dots = of_dots;
  using Weight = fp32;
};

}  // namespace moetune
