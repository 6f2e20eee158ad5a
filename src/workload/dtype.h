// Number formats of operands and their conversions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// fp8 is e4m3: four bits of exponent, three of fraction, no infinity, at most 448. int8 is signed. Two elements of
/// int4 or uint4 share a byte, the first in its low bits: that of int4 is the value + 8, that of uint4 the value + its
/// zero point. int8_w8a8 is a layer's format: its X and W are int8. In layers of int8, int4 and uint4 only W is
/// quantised.
enum class Dtype { bf16, fp16, fp32, fp8, int8, int8_w8a8, int4, uint4 };

std::string_view name(Dtype dtype);
Dtype parse_dtype(std::string_view text);  // Exit::request with the nearest
std::vector<std::string> dtype_names();
int64_t bits(Dtype dtype);
int64_t size_bytes(Dtype dtype);    // 0 where elements share a byte
bool is_quantised(Dtype dtype);     // needs scales
bool is_weights_only(Dtype dtype);  // of a layer: X is not quantised
int significand_bits(Dtype dtype);  // with the hidden one: bf16 8, fp16 11, fp32 24, fp8 4

/// What one scale of an operand covers.
enum class ScaleKind {
  none,
  tensor,   // a matrix: of one expert, or the ragged one
  channel,  // a row of memory
  block,    // rows x columns
  group32,  // so many columns of a row
  group64,
  group128,
};

std::string_view name(ScaleKind kind);          // as the enumerator
ScaleKind parse_scales(std::string_view text);  // all but none; Exit::request with the nearest
std::vector<std::string> scale_names();         // those that parse_scales takes, the default first

/// Round to nearest even, as the hardware does; NaN stays NaN, overflow becomes infinity, of fp8 the largest value.
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);
uint8_t to_fp8(float value);
float from_fp8(uint8_t bits);

/// Whether operands of a dtype have scales of this kind.
bool may_have(Dtype dtype, ScaleKind scales);
/// Those that it has where nothing else is said: none, block, channel or group128.
ScaleKind usual_scales(Dtype dtype);
/// Columns that a scale of groups covers; 0 for other kinds.
int64_t group_columns(ScaleKind kind);

/// `value` rounded to `dtype` and back: of 4 bits to -8 ... 7.
float round_to(Dtype dtype, float value);

}  // namespace moetune
