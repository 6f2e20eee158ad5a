// Reading rows of operands.
#include "backend/cpu/matrices.h"

namespace moetune {

const std::byte* Input::at(int64_t expert, int64_t row, int64_t column) const {
  const int64_t index = memory_row(product, operand, expert, row) * operand.columns + column;
  return data + index * size_bytes(operand.type.dtype);
}

void Input::unpack(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const {
  widen(dots, operand.type.dtype, at(expert, row, column), count, target);
  if (!weights) return;
  const float weight = weight_of_row(product, weights, expert, row);
  for (int64_t i = 0; i < count; ++i) target[i] = round_to(operand.type.dtype, target[i] * weight);
}

Input input_a(const Product& product, const Matrices& matrices) {
  return {.product = product,
          .operand = product.a,
          .data = static_cast<const std::byte*>(matrices.a),
          .scales = has_scales(product.a.type) ? matrices.a_scales : nullptr,
          .weights = product.weighting == Weighting::a ? matrices.topk_weights : nullptr};
}

Input input_b(const Product& product, const Matrices& matrices) {
  return {.product = product,
          .operand = product.b,
          .data = static_cast<const std::byte*>(matrices.b),
          .scales = has_scales(product.b.type) ? matrices.b_scales : nullptr,
          .weights = nullptr};
}

Input input_x(const Product& product, const Matrices& matrices) {
  return {.product = product,
          .operand = product.weight_gradient->x,
          .data = static_cast<const std::byte*>(matrices.x),
          .scales = nullptr,
          .weights = nullptr};
}

void unpack_d(const Product& product, const Matrices& matrices, int64_t expert, int64_t row, int64_t column,
              int64_t count, float* target) {
  const Input d{.product = product,
                .operand = product.d,
                .data = static_cast<const std::byte*>(matrices.d),
                .scales = nullptr,
                .weights = nullptr};
  d.unpack(expert, row, column, count, target);
}

float weight_of_row(const Product& product, const float* topk_weights, int64_t expert, int64_t row) {
  const int64_t in_order = product.first_rows[static_cast<size_t>(expert)] + row;
  return topk_weights[product.gather_indices[static_cast<size_t>(in_order)]];
}

}  // namespace moetune
