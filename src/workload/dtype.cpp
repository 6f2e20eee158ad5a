// Names, sizes and roundings of elements.
#include "workload/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/group.h"

namespace moetune {
namespace {

struct Element {
  std::string_view name;
  int64_t bits;
  int significand_bits;
};

// In the order of Dtype.
constexpr Element kElements[] = {{"bf16", 16, 8}, {"fp16", 16, 11}, {"fp32", 32, 24}, {"fp8", 8, 4}, {"int8", 8, 8},
                                 {"int4", 4, 4},  {"uint4", 4, 4},  {"e2m1", 4, 2},   {"e8m0", 8, 1}};

const Element& element_of(Dtype dtype) { return kElements[static_cast<size_t>(dtype)]; }

// `value` / 2^`shift`, rounded to nearest even.
uint32_t shift_to_even(uint32_t value, int shift) {
  if (shift > 31) return 0;
  const uint32_t kept = value >> shift;
  const uint32_t rest = value & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)));
}

}  // namespace

std::string_view name(Dtype dtype) { return element_of(dtype).name; }

Dtype parse_dtype(std::string_view text) {
  return static_cast<Dtype>(place_of_word("dtype", text, mapped<std::string>(kElements, &Element::name)));
}

int64_t bits(Dtype dtype) { return element_of(dtype).bits; }

int64_t size_bytes(Dtype dtype) { return bits(dtype) / 8; }

int significand_bits(Dtype dtype) { return element_of(dtype).significand_bits; }

uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>(shift_to_even(bits, 16));  // a carry out of the significand is the next exponent
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and up round to infinity
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < -14) {  // subnormal: units of 2^-24
    const uint32_t significand = (magnitude & 0x7fffff) | (exponent > -127 ? 0x800000u : 0u);
    return static_cast<uint16_t>(sign | shift_to_even(significand, -1 - exponent));
  }
  return static_cast<uint16_t>(sign | shift_to_even(magnitude - (112u << 23), 13));
}

float from_fp16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint8_t to_fp8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= 0x43e00000) return static_cast<uint8_t>(sign | 0x7e);  // 448 and up
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < -6) {  // subnormal: units of 2^-9
    const uint32_t significand = (magnitude & 0x7fffff) | (exponent > -127 ? 0x800000u : 0u);
    return static_cast<uint8_t>(sign | shift_to_even(significand, 14 - exponent));
  }
  return static_cast<uint8_t>(sign | shift_to_even(magnitude - (120u << 23), 20));
}

float from_fp8(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  if (magnitude < 8) return (sign ? -1.0f : 1.0f) * static_cast<float>(magnitude) * 0x1p-9f;
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

uint8_t to_e8m0(float value) { return static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23); }

float from_e8m0(uint8_t bits) {
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(bits == 0 ? 0x400000u : uint32_t{bits} << 23);
}

namespace {

constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};  // of e2m1, by its low three bits

}  // namespace

uint8_t to_nibble(Dtype dtype, float value) {
  if (dtype != Dtype::e2m1) return static_cast<uint8_t>(std::clamp(std::nearbyint(value), -8.0f, 7.0f) + 8);
  const float size = std::abs(value);
  uint8_t best = 0;
  for (uint8_t i = 1; i < 8; ++i) {
    const float middle = (kMagnitudes[i - 1] + kMagnitudes[i]) / 2;
    if (size > middle || (size == middle && i % 2 == 0)) best = i;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 8 : 0));
}

float from_nibble(Dtype dtype, int nibble) {
  if (dtype != Dtype::e2m1) return static_cast<float>(nibble - 8);
  return nibble & 8 ? -kMagnitudes[nibble & 7] : kMagnitudes[nibble];
}

float round_to(Dtype dtype, float value) {
  if (dtype == Dtype::bf16) return from_bf16(to_bf16(value));
  if (dtype == Dtype::fp16) return from_fp16(to_fp16(value));
  if (dtype == Dtype::fp8) return from_fp8(to_fp8(value));
  if (dtype == Dtype::int8) return std::clamp(std::nearbyint(value), -128.0f, 127.0f);
  if (dtype == Dtype::e8m0) return from_e8m0(to_e8m0(value));
  if (bits(dtype) == 4) return from_nibble(dtype, to_nibble(dtype, value));
  return value;
}

}  // namespace moetune
