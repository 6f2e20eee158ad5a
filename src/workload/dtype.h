// Number formats of operands and their conversions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// fp8 is e4m3: four bits of exponent, three of fraction, no infinity, at most 448.
enum class Dtype { bf16, fp16, fp32, fp8 };

std::string_view name(Dtype dtype);
Dtype parse_dtype(std::string_view text);  // Exit::request with the nearest
std::vector<std::string> dtype_names();
int64_t size_bytes(Dtype dtype);
int significand_bits(Dtype dtype);  // with the hidden one: bf16 8, fp16 11, fp32 24, fp8 4

/// What one scale of an operand covers.
enum class ScaleKind {
  none,
  tensor,   // a matrix: of one expert, or the ragged one
  channel,  // a row of memory
  block,    // rows x columns
};

std::string_view name(ScaleKind kind);          // as the enumerator
ScaleKind parse_scales(std::string_view text);  // tensor, channel or block; Exit::request with the nearest
std::vector<std::string> scale_names();         // those that parse_scales takes, the default first

/// Round to nearest even, as the hardware does; NaN stays NaN, overflow becomes infinity, of fp8 the largest value.
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);
uint8_t to_fp8(float value);
float from_fp8(uint8_t bits);

/// `value` rounded to `dtype` and back.
float round_to(Dtype dtype, float value);

}  // namespace moetune
