// Prefix sums and maps of rows.
#include "workload/product/product_rows.h"

#include <algorithm>
#include <numeric>

namespace moetune {

int64_t experts(const Product& product) { return static_cast<int64_t>(product.m_sizes.size()); }

int64_t routed_rows(const Product& product) { return product.first_rows.back(); }

int64_t extent(const Product& product, int64_t expert, Axis axis) {
  if (axis == product.ragged) return product.m_sizes[static_cast<size_t>(expert)];
  return axis == Axis::m ? product.m : axis == Axis::n ? product.n : product.k;
}

bool is_ragged(const Product& product, const Operand& operand) { return operand.row_axis == product.ragged; }

bool is_k_major(const Operand& operand) { return operand.column_axis == Axis::k; }

int64_t first_row(const Product& product, const Operand& operand, int64_t expert) {
  if (is_ragged(product, operand)) return product.first_rows[static_cast<size_t>(expert)];
  return expert * extent(product, 0, operand.row_axis);
}

int64_t owned_rows(const Product& product, const Operand& operand) {
  return first_row(product, operand, experts(product));
}

int64_t memory_row(const Product& product, const Operand& operand, int64_t expert, int64_t row) {
  const int64_t in_order = first_row(product, operand, expert) + row;
  if (operand.order == RowOrder::in_place) return in_order;
  const int64_t slot = product.gather_indices[static_cast<size_t>(in_order)];
  return operand.order == RowOrder::by_token ? slot / product.top_k : slot;
}

std::vector<int64_t> row_map(const Product& product, const Operand& operand) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(owned_rows(product, operand)));
  for (int64_t expert = 0; expert < experts(product); ++expert)
    for (int64_t row = 0; row < extent(product, expert, operand.row_axis); ++row)
      rows.push_back(memory_row(product, operand, expert, row));
  return rows;
}

Place place_of(const Product& product, const Operand& operand, int64_t row) {
  if (!is_ragged(product, operand)) {
    const int64_t rows = extent(product, 0, operand.row_axis);
    return {row / rows, row % rows};
  }
  const auto& first = product.first_rows;
  const int64_t expert = std::ranges::upper_bound(first, row) - first.begin() - 1;
  return {expert, row - first[static_cast<size_t>(expert)]};
}

bool is_filled(const Product& product, const Operand& result) {
  return result.matrix == LayerMatrix::dweights || (result.matrix == product.d.matrix && sums_slots(product));
}

int64_t result_rows(const Product& product, const Operand& result) {
  return is_filled(product, result) ? result.rows : owned_rows(product, result);
}

std::vector<int64_t> result_map(const Product& product, const Operand& result) {
  if (!is_filled(product, result)) return row_map(product, result);
  std::vector<int64_t> rows(static_cast<size_t>(result.rows));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

std::vector<int64_t> result_terms(const Product& product, const Operand& result) {
  std::vector<int64_t> terms(static_cast<size_t>(result_rows(product, result)));
  if (is_filled(product, result)) {
    const int64_t more = result.matrix == LayerMatrix::dweights ? product.n + product.k : product.k;
    for (const int64_t row : row_map(product, result)) terms[static_cast<size_t>(row)] += more;
    return terms;
  }
  auto next = terms.begin();
  for (int64_t expert = 0; expert < experts(product); ++expert)
    next = std::fill_n(next, extent(product, expert, result.row_axis), extent(product, expert, Axis::k));
  return terms;
}

std::vector<int32_t> rows_of_slots(const Product& product) {
  std::vector<int32_t> rows(static_cast<size_t>(product.slots), -1);
  for (size_t row = 0; row < product.gather_indices.size(); ++row)
    rows[static_cast<size_t>(product.gather_indices[row])] = static_cast<int32_t>(row);
  return rows;
}

}  // namespace moetune
