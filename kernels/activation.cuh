// Activations and their derivatives, with exact exponentials: what gradients and references are made of.
#pragma once
#include "formulas.h"
#include "numbers.cuh"

namespace moetune {

struct Quotient {
  float value, inverse;
};
// a / b and 1 / b for b >= 1. With `fast` the first is rounded as by the operator, but there is no branch, and b counts
// as 2^100 at most.
template <bool fast>
__device__ __forceinline__ Quotient quotient(float a, float b) {
  if (!fast) return {a / b, 1 / b};
  b = fminf(b, 0x1p100f);
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  inverse = fmaf(fmaf(-b, inverse, 1), inverse, inverse);
  const float q = a * inverse;
  return {fmaf(fmaf(-b, q, a), inverse, q), inverse};
}

// Of a gate and its up, with the derivatives by both.
struct Activated {
  float value, of_gate, of_up;
};
template <bool fast = false>
__device__ __forceinline__ Activated activated(Activation activation, float gate, float up) {
  if (activation == Activation::gelu) {
    constexpr float root = kRootOfHalf, density = kInverseRootOf2Pi;
    const float below = (1 + erff(gate * root)) / 2;
    return {gate * below * up, (below + gate * expf(-gate * gate / 2) * density) * up, gate * below};
  }
  constexpr float of_gpt_oss = kGptOssSlope, limit = kGptOssLimit;
  const bool limited = activation == Activation::gpt_oss;
  const float g = limited ? fminf(gate, limit) : gate, u = limited ? fminf(fmaxf(up, -limit), limit) + 1 : up;
  const float slope = limited ? of_gpt_oss : 1;
  const auto [gs, s] = quotient<fast>(g, 1 + expf(limited ? -of_gpt_oss * g : -g));
  const float of_gate = (s + slope * gs * (1 - s)) * u;
  return {gs * u, limited && gate > limit ? 0 : of_gate, limited && fabsf(up) > limit ? 0 : gs};
}
__device__ __forceinline__ float activate(Activation activation, float gate, float up) {
  return activated(activation, gate, up).value;
}

}  // namespace moetune
