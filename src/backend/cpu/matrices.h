// Where the operands of one launch lie in memory, and their elements as floats. Not what is done with them.
#pragma once
#include <cstdint>

#include "workload/product.h"

namespace moetune {

/// `count` elements of `dtype` to floats, exactly, and floats to elements, each rounded to nearest even.
void to_floats(Dtype dtype, const void* elements, int64_t count, float* target);
void from_floats(Dtype dtype, const float* values, int64_t count, void* target);

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

/// An operand in memory. Rows and columns are an expert's, by the operand's own axes.
struct Input {
  const Product& product;
  const Operand& operand;
  const void* data;
  const float* scales = nullptr;   // null without
  const float* weights = nullptr;  // null where this operand is not weighted

  /// Elements [column, column + count) of a row, weighted but not scaled.
  void unpack(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const;
  /// The scale of an element; 1 without scales.
  float scale(int64_t expert, int64_t row, int64_t column) const {
    return scales ? scales[scale_index(product, operand, expert, row, column)] : 1;
  }
};
Input input_a(const Product& product, const Matrices& matrices);
Input input_b(const Product& product, const Matrices& matrices);
/// The X of the weights' gradient.
Input input_x(const Product& product, const Matrices& matrices);
/// What is in D before a launch that accumulates.
Input input_d(const Product& product, const Matrices& matrices);

/// Top-k weight of row `row` of an expert.
float weight_of_row(const Product& product, const float* topk_weights, int64_t expert, int64_t row);

}  // namespace moetune
