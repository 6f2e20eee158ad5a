// Counts FLOPs, bytes and tiles.
#include "workload/product/work.h"

#include <algorithm>

#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

/// Rows in memory that a launch touches, each counted once.
int64_t touched_rows(const Product& p, const Operand& operand) {
  if (is_filled(p, operand)) return operand.rows;
  if (!is_ragged(p, operand)) {
    const bool written = operand.matrix == p.d.matrix && !p.accumulates;
    const int64_t active = std::ranges::count_if(p.m_sizes, [](int32_t m) { return m > 0; });
    return (written ? experts(p) : active) * extent(p, 0, operand.row_axis);
  }
  if (operand.order != RowOrder::by_token) return routed_rows(p);
  std::vector<bool> used(static_cast<size_t>(operand.rows));
  for (const int32_t slot : p.gather_indices) used[static_cast<size_t>(slot / p.top_k)] = true;
  return std::ranges::count(used, true);
}

}  // namespace

double tile_occupancy(const Product& product, int64_t block_m) {
  int64_t rows = 0, tiles = 0;
  for (int64_t expert = 0; expert < experts(product); ++expert) {
    const int64_t m = extent(product, expert, Axis::m);
    rows += m, tiles += ceil_divide(m, block_m);
  }
  return rows == 0 ? 1 : static_cast<double>(rows) / static_cast<double>(tiles * block_m);
}

double flops(const Product& product) {
  double others = 1;  // the extents that are the same for every expert
  for (const Axis axis : {Axis::m, Axis::n, Axis::k})
    if (axis != product.ragged) others *= static_cast<double>(extent(product, 0, axis));
  if (product.weight_gradient) others += static_cast<double>(product.n);
  return 2.0 * static_cast<double>(routed_rows(product)) * others;
}

double bytes(const Product& product) {
  double sum = 0;
  bool permuted = false;
  std::vector<const Operand*> operands = {&product.a, &product.b, &product.d};
  if (product.gate_gradient) operands.push_back(&product.gate_gradient->h);
  if (const Operand* second = second_result(product)) operands.push_back(second);
  if (const auto& gradient = product.weight_gradient) {
    operands.push_back(&gradient->dweights);
    if (!product.gate_gradient) operands.push_back(&gradient->x);
  }
  for (const Operand* operand : operands) {
    const double times = product.accumulates && operand == &product.d ? 2 : 1;
    sum += times * static_cast<double>(touched_rows(product, *operand)) * static_cast<double>(row_bytes(*operand));
    sum += static_cast<double>(scale_count(product, *operand)) *
           (static_cast<double>(size_bytes(operand->type.scales.dtype)) + (operand->type.zero_points ? 0.5 : 0));
    permuted = permuted || operand->order != RowOrder::in_place;
  }
  if (product.bias) sum += static_cast<double>(product.bias->rows * row_bytes(*product.bias));
  const int64_t a_row = (permuted ? 1 : 0) + (product.weighting != Weighting::none ? 1 : 0);
  return sum + 4.0 * static_cast<double>(experts(product) + routed_rows(product) * a_row);
}

}  // namespace moetune
