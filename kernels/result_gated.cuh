// Functions of the result that make a column of Y from a gate and an up: act(gate) * up, in fp32, rounded once.
#pragma once
#include "activation.cuh"
#include "result.cuh"

namespace moetune {

// Each of these is called with both sums of an element of Y.
struct Silu {
  static __forceinline__ float of(float gate, float up) { return __fdividef(gate, 1 + __expf(-gate)) * up; }
};
// With the error function, as torch's default.
struct Gelu {
  static __forceinline__ float of(float gate, float up) { return 0.5f * gate * (1 + erff(gate * 0.70710678f)) * up; }
};
// Of gpt-oss: both are limited, and 1 is added to up.
struct GptOss {
  static __forceinline__ float of(float gate, float up) {
    gate = fminf(gate, 7);
    return __fdividef(gate, 1 + __expf(-1.702f * gate)) * (fminf(fmaxf(up, -7), 7) + 1);
  }
};

// Of an fp8 Y the epilogue quantises (quantise.cuh), which sees a scale's columns together.
template <class Element, class Activation>
struct Gated {
  using Result = Element;
  static constexpr int columns_per_output = 2;
  static constexpr bool weighs = false;
  using Weight = typename Identity<Element>::Weight;
  using Weights = unsigned;
  static __forceinline__ float value(const float* sums, Weight) { return Activation::of(sums[0], sums[1]); }
  static __forceinline__ unsigned pair(const float* low, const float* high, const Weights&) {
    return pack<Result>(Activation::of(low[0], low[1]), Activation::of(high[0], high[1]));
  }
};

// The gradients of gates and ups: dH of sums, weighted if `weighs`, and H; and X again. An epilogue makes these, and
// with `dots` the products of sums and X.
template <class Element, int of_activation, bool of_weighted, bool of_dots>
struct GateGradient {
  using Result = Element;
  static constexpr int columns_per_output = 1, activation = of_activation;
  static constexpr bool weighs = of_weighted, dots = of_dots;
  using Weight = fp32;
};

}  // namespace moetune
