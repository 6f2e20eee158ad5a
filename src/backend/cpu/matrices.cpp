// Reading rows of operands.
#include "backend/cpu/operands.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "workload/product/product_rows.h"

namespace moetune {
namespace {

// Unlike from_fp16 and to_bf16 these are inlined, so that loops over them are vectorised.

/// Exponent and fraction move to their places in fp32; a multiplication corrects the bias and normalises subnormals.
float widen_fp16(uint16_t value) {
  const uint32_t moved = (value & 0x7fffU) << 13;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(moved) * 0x1p112F);
  const uint32_t magnitude = moved >= 0x0f800000 ? moved | 0x7f800000 : finite;
  return std::bit_cast<float>(magnitude | ((value & 0x8000U) << 16));
}

/// As to_bf16: half of a unit is added, less one where the kept part is even. NaN becomes quiet.
uint16_t narrow_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<uint16_t>((is_nan ? bits | 0x400000U : bits + 0x7fffU + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

void to_floats(Dtype dtype, const void* elements, int64_t count, float* target) {
  const auto* halves = static_cast<const uint16_t*>(elements);
  if (dtype == Dtype::fp32) std::memcpy(target, elements, static_cast<size_t>(count) * sizeof(float));
  if (dtype == Dtype::bf16)
    for (int64_t i = 0; i < count; ++i) target[i] = std::bit_cast<float>(uint32_t{halves[i]} << 16);
  if (dtype == Dtype::fp16)
    for (int64_t i = 0; i < count; ++i) target[i] = widen_fp16(halves[i]);
  if (dtype == Dtype::fp8) {
    static const std::array<float, 256> values = [] {
      std::array<float, 256> all{};
      for (size_t bits = 0; bits < all.size(); ++bits) all[bits] = from_fp8(static_cast<uint8_t>(bits));
      return all;
    }();
    for (int64_t i = 0; i < count; ++i) target[i] = values[static_cast<const uint8_t*>(elements)[i]];
  }
  if (dtype == Dtype::int8)
    for (int64_t i = 0; i < count; ++i) target[i] = static_cast<const int8_t*>(elements)[i];
}

void from_floats(Dtype dtype, const float* values, int64_t count, void* target) {
  auto* halves = static_cast<uint16_t*>(target);
  if (dtype == Dtype::fp32) std::memcpy(target, values, static_cast<size_t>(count) * sizeof(float));
  if (dtype == Dtype::bf16)
    for (int64_t i = 0; i < count; ++i) halves[i] = narrow_bf16(values[i]);
  if (dtype == Dtype::fp16)
    for (int64_t i = 0; i < count; ++i) halves[i] = to_fp16(values[i]);
  auto* octets = static_cast<uint8_t*>(target);
  if (dtype == Dtype::fp8)
    for (int64_t i = 0; i < count; ++i) octets[i] = to_fp8(values[i]);
  if (dtype == Dtype::int8)
    for (int64_t i = 0; i < count; ++i) octets[i] = static_cast<uint8_t>(static_cast<int8_t>(values[i]));
  if (bits(dtype) == 4)
    for (int64_t i = 0; i < count; ++i)
      octets[i / 2] =
          static_cast<uint8_t>((octets[i / 2] & (i % 2 ? 15 : 240)) | to_nibble(dtype, values[i]) << (i % 2 * 4));
}

float nibble_at(Dtype dtype, const void* elements, int64_t index) {
  return from_nibble(dtype, static_cast<const uint8_t*>(elements)[index / 2] >> (index % 2 * 4) & 15);
}

void Input::unpack(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const {
  const int64_t index = memory_row(product, operand, expert, row) * operand.columns + column;
  if (bits(operand.type.dtype) == 4)
    for (int64_t i = 0; i < count; ++i) target[i] = nibble_at(operand.type.dtype, data, index + i);
  else
    to_floats(operand.type.dtype, static_cast<const std::byte*>(data) + index * size_bytes(operand.type.dtype), count,
              target);
  if (!weights) return;
  const float weight = weight_of_row(product, weights, expert, row);
  for (int64_t i = 0; i < count; ++i) target[i] = round_to(operand.type.dtype, target[i] * weight);
}

void Input::unpack_scaled(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const {
  unpack(expert, row, column, count, target);
  if (!scales) return;
  const Scales& kind = operand.type.scales;
  const int64_t step = kind.kind == ScaleKind::block ? kind.columns : operand.columns;
  for (int64_t first = 0, end = 0; first < count; first = end) {
    end = std::min(count, ((column + first) / step + 1) * step - column);
    const float factor = scale(expert, row, column + first);
    const float zero =
        zeros ? nibble_at(operand.type.dtype, zeros, zero_index(product, operand, expert, row, column + first)) : 0;
    for (int64_t i = first; i < end; ++i) target[i] = (target[i] - zero) * factor;
  }
  if (!scales_stage(operand.type)) return;
  for (int64_t i = 0; i < count; ++i) target[i] = round_to(operand.type.stage, target[i]);
}

Input input_a(const Product& product, const Matrices& matrices) {
  return {.product = product,
          .operand = product.a,
          .data = matrices.a,
          .scales = has_scales(product.a.type) ? matrices.a_scales : nullptr,
          .weights = product.weighting == Weighting::a ? matrices.topk_weights : nullptr};
}

Input input_b(const Product& product, const Matrices& matrices) {
  return {.product = product,
          .operand = product.b,
          .data = matrices.b,
          .scales = has_scales(product.b.type) ? matrices.b_scales : nullptr,
          .zeros = product.b.type.zero_points ? matrices.b_zeros : nullptr};
}

std::vector<float> bias_of(const Product& product, const Matrices& matrices, int64_t expert) {
  std::vector<float> values(static_cast<size_t>(product.n));
  const Operand& bias = *product.bias;
  to_floats(bias.type.dtype, static_cast<const std::byte*>(matrices.bias) + expert * row_bytes(bias), product.n,
            values.data());
  return values;
}

float weight_of_row(const Product& product, const float* topk_weights, int64_t expert, int64_t row) {
  const int64_t in_order = product.first_rows[static_cast<size_t>(expert)] + row;
  return topk_weights[product.gather_indices[static_cast<size_t>(in_order)]];
}

}  // namespace moetune
