// Names, sizes and roundings of number formats.
#include "workload/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/group.h"

namespace moetune {
namespace {

struct Format {
  Dtype dtype;
  std::string_view name;
  int64_t bits;
  int significand_bits;
};

constexpr Format kFormats[] = {
    {Dtype::bf16, "bf16", 16, 8}, {Dtype::fp16, "fp16", 16, 11}, {Dtype::fp32, "fp32", 32, 24},
    {Dtype::fp8, "fp8", 8, 4},    {Dtype::int8, "int8", 8, 8},   {Dtype::int8_w8a8, "int8-w8a8", 8, 8},
    {Dtype::int4, "int4", 4, 4},  {Dtype::uint4, "uint4", 4, 4},
};

// Those that have a word, the default first.
constexpr ScaleKind kScaleKinds[] = {ScaleKind::block,   ScaleKind::channel, ScaleKind::tensor,
                                     ScaleKind::group32, ScaleKind::group64, ScaleKind::group128};

const Format& format_of(Dtype dtype) { return kFormats[static_cast<size_t>(dtype)]; }

// `value` / 2^`shift`, rounded to nearest even.
uint32_t shift_to_even(uint32_t value, int shift) {
  if (shift > 31) return 0;
  const uint32_t kept = value >> shift;
  const uint32_t rest = value & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)));
}

}  // namespace

std::string_view name(Dtype dtype) { return format_of(dtype).name; }

Dtype parse_dtype(std::string_view text) { return static_cast<Dtype>(place_of_word("dtype", text, dtype_names())); }

std::vector<std::string> dtype_names() { return mapped<std::string>(kFormats, &Format::name); }

int64_t bits(Dtype dtype) { return format_of(dtype).bits; }

int64_t size_bytes(Dtype dtype) { return bits(dtype) / 8; }

bool is_quantised(Dtype dtype) { return bits(dtype) <= 8; }

bool is_weights_only(Dtype dtype) { return dtype == Dtype::int8 || bits(dtype) == 4; }

int significand_bits(Dtype dtype) { return format_of(dtype).significand_bits; }

std::string_view name(ScaleKind kind) {
  constexpr std::string_view kNames[] = {"none", "tensor", "channel", "block", "group32", "group64", "group128"};
  return kNames[static_cast<size_t>(kind)];
}

ScaleKind parse_scales(std::string_view text) {
  return kScaleKinds[place_of_word("kind of scales", text, scale_names())];
}

std::vector<std::string> scale_names() {
  return mapped<std::string>(kScaleKinds, [](ScaleKind kind) { return name(kind); });
}

bool may_have(Dtype dtype, ScaleKind scales) {
  if (!is_quantised(dtype) || scales == ScaleKind::none) return !is_quantised(dtype) && scales == ScaleKind::none;
  if (dtype == Dtype::fp8 || bits(dtype) == 4) return (group_columns(scales) > 0) == (bits(dtype) == 4);
  return scales == ScaleKind::channel;
}

ScaleKind usual_scales(Dtype dtype) {
  for (const ScaleKind kind : {ScaleKind::none, ScaleKind::block, ScaleKind::channel})
    if (may_have(dtype, kind)) return kind;
  return ScaleKind::group128;
}

int64_t group_columns(ScaleKind kind) {
  return kind == ScaleKind::group32 ? 32 : kind == ScaleKind::group64 ? 64 : kind == ScaleKind::group128 ? 128 : 0;
}

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

float round_to(Dtype dtype, float value) {
  if (dtype == Dtype::bf16) return from_bf16(to_bf16(value));
  if (dtype == Dtype::fp16) return from_fp16(to_fp16(value));
  if (dtype == Dtype::fp8) return from_fp8(to_fp8(value));
  if (dtype == Dtype::int8) return std::clamp(std::nearbyint(value), -128.0f, 127.0f);
  if (bits(dtype) == 4) return std::clamp(std::nearbyint(value), -8.0f, 7.0f);
  return value;
}

}  // namespace moetune
