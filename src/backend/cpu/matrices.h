// Where the operands of one launch lie in memory, and their rows as floats. Not what is done with them.
#pragma once
#include "backend/cpu/dots.h"
#include "workload/product.h"

namespace moetune {

/// The operands as a product describes them.
struct Matrices {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const float* topk_weights = nullptr;  // [slots], where the product is weighted
  const float* a_scales = nullptr;      // [scale_count], where the operand has scales
  const float* b_scales = nullptr;
  const void* x = nullptr;    // with the weights' gradient
  float* dweights = nullptr;  // [slots], the same
};

/// A or B in memory. Rows and columns are an expert's, by the operand's own axes.
struct Input {
  const Product& product;
  const Operand& operand;
  const std::byte* data;
  const float* scales;   // null without
  const float* weights;  // null where this operand is not weighted
  const Dots& dots = moetune::dots();

  const std::byte* at(int64_t expert, int64_t row, int64_t column) const;
  /// Elements [column, column + count) of a row, weighted but not scaled.
  void unpack(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const;
  /// Multiplies what was unpacked from there by the scales, if there are any.
  template <class Value>
  void scale(int64_t expert, int64_t row, int64_t column, int64_t count, Value* values) const {
    if (!scales) return;
    for (int64_t i = 0; i < count; ++i)
      values[i] *= static_cast<Value>(scales[scale_index(product, operand, expert, row, column + i)]);
  }
};
Input input_a(const Product& product, const Matrices& matrices);
Input input_b(const Product& product, const Matrices& matrices);
/// The X of the weights' gradient.
Input input_x(const Product& product, const Matrices& matrices);

/// What is in D in a row of an expert, before a launch that accumulates.
void unpack_d(const Product& product, const Matrices& matrices, int64_t expert, int64_t row, int64_t column,
              int64_t count, float* target);

/// Top-k weight of row `row` of an expert.
float weight_of_row(const Product& product, const float* topk_weights, int64_t expert, int64_t row);

}  // namespace moetune
