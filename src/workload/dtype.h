// Number formats of operands and their conversions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

enum class Dtype { bf16, fp16, fp32 };

std::string_view name(Dtype dtype);
Dtype parse_dtype(std::string_view text);  // Exit::request with the nearest
std::vector<std::string> dtype_names();
int64_t size_bytes(Dtype dtype);
int significand_bits(Dtype dtype);  // with the hidden one: bf16 8, fp16 11, fp32 24

/// Round to nearest even, as the hardware does; NaN stays NaN, overflow becomes infinity.
uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);

/// `value` rounded to `dtype` and back.
float round_to(Dtype dtype, float value);

}  // namespace moetune
