// Rows of results.
#include "workload/result.h"

#include <algorithm>
#include <numeric>

namespace moetune {

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
