// Strides and counts of blocks.
#include "workload/product/scale_places.h"

#include <algorithm>

#include "kernels/reordered.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

/// Rows of a matrix whose scales are counted together: of one expert, or of the ragged one.
int64_t matrix_rows(const Product& p, const Operand& operand) {
  return std::max<int64_t>(1, is_ragged(p, operand) ? operand.rows : extent(p, 0, operand.row_axis));
}

struct ScaledBlock {
  int64_t rows, columns;
};

/// What one scale covers.
ScaledBlock scaled_block(const Product& p, const Operand& operand) {
  const Scales& scales = operand.type.scales;
  if (scales.kind == ScaleKind::block) return {scales.rows, scales.columns};
  return {scales.kind == ScaleKind::channel ? 1 : matrix_rows(p, operand), operand.columns};
}

}  // namespace

int64_t zero_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column) {
  const ScaleStrides strides = scale_strides(product, operand);
  const int64_t even = expert * strides.expert + row / 2 * 2 * strides.row;  // of both rows
  return even + column / operand.type.scales.columns * 2 + row % 2;
}

int64_t scale_count(const Product& product, const Operand& operand) {
  if (!has_scales(operand.type)) return 0;
  const ScaledBlock block = scaled_block(product, operand);
  const int64_t matrices = is_ragged(product, operand) ? 1 : experts(product);
  return matrices * ceil_divide(matrix_rows(product, operand), block.rows) *
         ceil_divide(operand.columns, block.columns);
}

int64_t scale_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column) {
  const ScaledBlock block = scaled_block(product, operand);
  const int64_t of_expert = ceil_divide(matrix_rows(product, operand), block.rows);
  const int64_t scale_row = is_ragged(product, operand) ? memory_row(product, operand, expert, row) / block.rows
                                                        : expert * of_expert + row / block.rows;
  return scale_row * ceil_divide(operand.columns, block.columns) + column / block.columns;
}

ScaleStrides scale_strides(const Product& product, const Operand& operand) {
  const ScaleKind kind = operand.type.scales.kind;
  if (kind == ScaleKind::none) return {};
  const ScaledBlock block = scaled_block(product, operand);
  const int64_t across = kind == ScaleKind::block ? ceil_divide(operand.columns, block.columns) : 1;
  return {.expert = is_ragged(product, operand) ? 0 : ceil_divide(matrix_rows(product, operand), block.rows) * across,
          .row = kind == ScaleKind::tensor ? 0 : across,
          .column = kind == ScaleKind::block ? 1 : 0};
}

int64_t reordered_block_bytes(const OperandType& type) {
  if (!type.reordered) return 0;
  return reordered_bytes(static_cast<int>(type.scales.columns), static_cast<int>(size_bytes(type.scales.dtype)),
                         type.zero_points);
}

int64_t reordered_w_bytes(const Product& product) {
  return experts(product) * reordered_down(product.n) * reordered_across(product.k) *
         reordered_block_bytes(product.b.type);
}

}  // namespace moetune
