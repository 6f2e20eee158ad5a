// Number formats and their conversions, and the hash that generates operands: bits and PTX.
#pragma once
#include "formulas.h"

namespace moetune {

struct fp32 {
  float value;
};
struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};
struct fp8 {  // e4m3: four bits of exponent, three of fraction, no infinity
  unsigned char bits;
};

struct int8 {
  signed char bits;
};
struct nibbles {  // two elements, the first in the low bits; each is 8 more than its value
  unsigned char bits;
};

struct e2m1 {  // two elements, the first in the low bits: a sign, two bits of exponent, one of fraction
  unsigned char bits;
};
struct e8m0 {  // 2^(bits - 127); 255 is NaN
  unsigned char bits;
};

__forceinline__ float to_float(e8m0 x) {
  if (x.bits == 255) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(x.bits == 0 ? 0x400000u : static_cast<unsigned>(x.bits) << 23);
}
__forceinline__ float to_float(int8 x) { return x.bits; }
__forceinline__ float to_float(fp32 x) { return x.value; }
__forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__forceinline__ float to_float(fp16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

__forceinline__ float to_float(fp8 x) {
  const unsigned sign = (x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7f) return __uint_as_float(0x7fc00000u);
  // Exponent and fraction move to their places in fp32; the product corrects the bias, of subnormals too.
  return __uint_as_float(sign | magnitude << 20) * 1.329227995784916e+36f;  // 2^120
}

template <class Element>
__forceinline__ Element round_to(float value);

template <>
__forceinline__ fp32 round_to<fp32>(float value) {
  return {value};
}
template <>
__forceinline__ bf16 round_to<bf16>(float value) {
  // To nearest even on the bits: cvt.rn.bf16 needs sm_80, this runs anywhere.
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<unsigned short>((bits >> 16) | 0x40)};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
__forceinline__ fp16 round_to<fp16>(float value) {
  fp16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}

// To nearest even on the bits: cvt to e4m3 needs sm_89. Past the largest value, 448, it stays there.
template <>
__forceinline__ fp8 round_to<fp8>(float value) {
  const unsigned bits = __float_as_uint(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<unsigned char>(sign | 0x7fu)};
  if (magnitude >= 0x43e00000u) return {static_cast<unsigned char>(sign | 0x7eu)};
  // Below 2^-6 units are 2^-9: adding 2^14 leaves a value in them, rounded.
  if (magnitude < 0x3c800000u)
    return {static_cast<unsigned char>(sign | (__float_as_uint(__uint_as_float(magnitude) + 16384.0f) & 0xfu))};
  const unsigned rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return {static_cast<unsigned char>(sign | (rounded - (120u << 23)) >> 20)};
}

template <>
__forceinline__ int8 round_to<int8>(float value) {
  return {static_cast<signed char>(__float2int_rn(fminf(fmaxf(value, -128.0f), 127.0f)))};
}

template <>
__forceinline__ e8m0 round_to<e8m0>(float value) {
  return {static_cast<unsigned char>(__float_as_uint(value) >> 23)};
}
// `value` rounded to 4 bits, to nearest even.
template <class Packed>
__forceinline__ unsigned nibble_of(float value);
template <>
__forceinline__ unsigned nibble_of<nibbles>(float value) {
  return __float2int_rn(fminf(fmaxf(value, -8.0f), 7.0f)) + 8;
}
template <>
__forceinline__ unsigned nibble_of<e2m1>(float value) {
  const float size = fabsf(value);
  const int magnitude = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
                        (size >= 3.5f) + (size > 5.0f);
  return magnitude | (__float_as_uint(value) >> 28 & 8);
}

// What random values are multiplied by before they are rounded; see stored_value in src/workload/product/values.h.
template <class Element>
constexpr float spread = 1;
template <>
constexpr float spread<int8> = kSpreadOfInt8;
template <>
constexpr float spread<nibbles> = kSpreadOfNibbles;

template <class Element>
__forceinline__ float element_at(const Element* elements, long long index) {
  return to_float(elements[index]);
}
__forceinline__ float element_at(const nibbles* elements, long long index) {
  return static_cast<float>(elements[index / 2].bits >> index % 2 * 4 & 15) - 8;
}

__forceinline__ float element_at(const e2m1* elements, long long index) {
  const unsigned nibble = elements[index / 2].bits >> index % 2 * 4;
  return __uint_as_float((nibble & 8) << 28 | (nibble & 7) << 22) * 8.507059173023462e+37f;  // 2^126, of subnormals too
}

template <class Element>
constexpr bool is_bf16 = false;
template <>
constexpr bool is_bf16<bf16> = true;

// Two neighbours in one register, `low` at the lower address.
template <class Element>
__forceinline__ unsigned pack(float low, float high) {
  unsigned result;
  if constexpr (is_bf16<Element>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// Half `half` of `pair`, twice. As halves, not as a permutation of bytes: a multiplication then takes it from where it
// is.
template <int half>
__forceinline__ unsigned twice(unsigned pair) {
  unsigned result;
  asm("{ .reg .b16 h<2>; mov.b32 {h0, h1}, %1; mov.b32 %0, {h%2, h%2}; }" : "=r"(result) : "r"(pair), "n"(half));
  return result;
}
// Two neighbours plus half of `b`, each sum rounded once.
template <class Element, int half>
__forceinline__ unsigned add_half(unsigned a, unsigned b) {
  unsigned result;
  if constexpr (is_bf16<Element>)  // times 1: add needs sm_90
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(0x3f803f80u), "r"(twice<half>(b)));
  else
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(twice<half>(b)));
  return result;
}

// Two neighbours times two others, each product rounded once.
template <class Element>
__forceinline__ unsigned multiply_pair(unsigned a, unsigned b) {
  unsigned result;
  if constexpr (is_bf16<Element>)  // adding -0 changes no product; mul needs sm_90
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000u));
  else
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Two neighbours times half of `b`.
template <class Element, int half>
__forceinline__ unsigned multiply_half(unsigned a, unsigned b) {
  return multiply_pair<Element>(a, twice<half>(b));
}

// The twin of splitmix64 in src/base/random.h.
__forceinline__ unsigned long long splitmix64(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace moetune
