// Elements of matrices and their conversions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// An element of a matrix or of its scales. fp8 is e4m3: four bits of exponent, three of fraction, no infinity, at most
/// 448. int8 is signed. Two elements of 4 bits share a byte, the first in its low bits: int4 is the value + 8, uint4
/// the value + its zero point, e2m1 a sign, two bits of exponent and one of fraction, at most 6. e8m0 is a power of
/// two, 2^(bits - 127), or NaN (255): OCP Microscaling Formats (MX) 1.0.
enum class Dtype { bf16, fp16, fp32, fp8, int8, int4, uint4, e2m1, e8m0 };

std::string_view name(Dtype dtype);
Dtype parse_dtype(std::string_view text);  // Exit::request with the nearest
int64_t bits(Dtype dtype);
int64_t size_bytes(Dtype dtype);    // of an element of a byte or more; 0 where elements share a byte
int significand_bits(Dtype dtype);  // with the hidden one: bf16 8, fp16 11, fp32 24, fp8 4

/// Round to nearest even, as the hardware does; NaN stays NaN, overflow becomes infinity, of fp8 and e2m1 the largest
/// value. to_e8m0 rounds down.
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);
uint8_t to_fp8(float value);
float from_fp8(uint8_t bits);
uint8_t to_e8m0(float value);
float from_e8m0(uint8_t bits);
/// Of 4 bits, `nibble` in 0 to 15.
uint8_t to_nibble(Dtype dtype, float value);
float from_nibble(Dtype dtype, int nibble);

/// `value` rounded to `dtype` and back: of 4-bit integers to -8 ... 7.
float round_to(Dtype dtype, float value);

}  // namespace moetune
