// Elements of matrices and their conversions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// An element of a matrix. fp8 is e4m3: four bits of exponent, three of fraction, no infinity, at most 448. int8 is
/// signed. Two elements of int4 or uint4 share a byte, the first in its low bits: that of int4 is the value + 8, that
/// of uint4 the value + its zero point.
enum class Dtype { bf16, fp16, fp32, fp8, int8, int4, uint4 };

std::string_view name(Dtype dtype);
Dtype parse_dtype(std::string_view text);  // Exit::request with the nearest
int64_t bits(Dtype dtype);
int64_t size_bytes(Dtype dtype);    // of an element of a byte or more; 0 where elements share a byte
int significand_bits(Dtype dtype);  // with the hidden one: bf16 8, fp16 11, fp32 24, fp8 4

/// Round to nearest even, as the hardware does; NaN stays NaN, overflow becomes infinity, of fp8 the largest value.
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);
uint8_t to_fp8(float value);
float from_fp8(uint8_t bits);

/// `value` rounded to `dtype` and back: of 4 bits to -8 ... 7.
float round_to(Dtype dtype, float value);

}  // namespace moetune
