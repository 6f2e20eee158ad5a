// Makes the product of a problem.
#include "workload/product/product.h"

#include <numeric>

namespace moetune {
namespace {

int64_t slots_of(const Problem& problem) { return problem.routing.tokens * problem.routing.top_k; }

/// A matrix of the layer: W and dW have n rows an expert, the others a row for each routed row, slot or token. Only Y
/// and dY have n columns.
Operand operand(const Problem& problem, LayerMatrix matrix, Axis row_axis, Axis column_axis,
                RowOrder order = RowOrder::in_place) {
  const Layer& layer = problem.shape.layer;
  const bool weights = matrix == LayerMatrix::w || matrix == LayerMatrix::dw;
  const bool of_y = matrix == LayerMatrix::y || matrix == LayerMatrix::dy;
  const bool pairs = matrix == LayerMatrix::h || matrix == LayerMatrix::dh;  // a gate and an up for each of X's
  return {.matrix = matrix,
          .type = matrix == LayerMatrix::x   ? layer.format.x
                  : matrix == LayerMatrix::w ? layer.format.w
                  : matrix == LayerMatrix::y ? layer.format.y
                                             : plain_type(layer.format.y.dtype),
          .rows = weights                       ? layer.local_experts() * layer.n
                  : order == RowOrder::in_place ? problem.rows()
                  : order == RowOrder::by_slot  ? slots_of(problem)
                                                : problem.routing.tokens,
          .columns = of_y    ? layer.n
                     : pairs ? 2 * layer.k
                             : layer.k,
          .row_axis = row_axis,
          .column_axis = column_axis,
          .order = order};
}

/// X that is gathered has a row for every token; its gradient has one for every slot, unless slots are summed.
void set_operands(Product& p, const Problem& problem) {
  const auto& [layer, op, fusion] = problem.shape;
  const RowOrder x = fusion.permute_x ? RowOrder::by_token : fusion.by_slot ? RowOrder::by_slot : RowOrder::in_place;
  const RowOrder slots = fusion.sum_slots ? RowOrder::by_token : RowOrder::by_slot;
  const RowOrder dx = fusion.permute_x ? slots : RowOrder::in_place;
  const RowOrder y = fusion.permute_y || fusion.by_slot ? slots : RowOrder::in_place;  // and dY
  switch (op) {
    case Op::fwd:
      p.a = operand(problem, LayerMatrix::x, Axis::m, Axis::k, x);
      p.b = operand(problem, LayerMatrix::w, Axis::n, Axis::k);
      p.d = operand(problem, LayerMatrix::y, Axis::m, Axis::n, y);
      p.ragged = Axis::m, p.n = layer.n, p.k = layer.k;
      p.weighting = Weighting::rounded_result;
      if (is_gated(fusion)) p.d.columns /= 2;
      if (fusion.store_h) p.h = operand(problem, LayerMatrix::h, Axis::m, Axis::n), p.h->columns = layer.n;
      if (fusion.bias)
        p.bias = {.matrix = LayerMatrix::bias,
                  .type = p.d.type,
                  .rows = layer.local_experts(),
                  .columns = layer.n,
                  .row_axis = Axis::n,
                  .column_axis = Axis::n};
      break;
    case Op::dx:
      p.a = operand(problem, LayerMatrix::dy, Axis::m, Axis::k, y);
      p.b = operand(problem, LayerMatrix::w, Axis::k, Axis::n);
      p.d = operand(problem, LayerMatrix::dx, Axis::m, Axis::n, dx);
      p.ragged = Axis::m, p.n = layer.k, p.k = layer.n;
      p.weighting = Weighting::result;
      if (fusion.weight_gradient)
        p.weight_gradient = {.x = operand(problem, LayerMatrix::x, Axis::m, Axis::n),
                             .dweights = {.matrix = LayerMatrix::dweights,
                                          .type = plain_type(Dtype::fp32),
                                          .rows = slots_of(problem),
                                          .columns = 1,
                                          .row_axis = Axis::m,
                                          .column_axis = Axis::n,
                                          .order = RowOrder::by_slot}};
      if (is_gated(fusion)) {
        p.d = operand(problem, LayerMatrix::dh, Axis::m, Axis::n);
        p.gate_gradient = {.h = operand(problem, LayerMatrix::h, Axis::m, Axis::n),
                           .x = operand(problem, LayerMatrix::x, Axis::m, Axis::n)};
      }
      break;
    case Op::dw:
      p.a = operand(problem, LayerMatrix::dy, Axis::k, Axis::m, y);
      p.b = operand(problem, LayerMatrix::x, Axis::k, Axis::n, x);
      p.d = operand(problem, LayerMatrix::dw, Axis::m, Axis::n);
      if (fusion.fp32_dw) p.d.type = plain_type(Dtype::fp32);
      p.accumulates = fusion.accumulate;
      p.ragged = Axis::k, p.m = layer.n, p.n = layer.k;
      p.weighting = Weighting::a;
      break;
  }
  if (!fusion.topk_weights) p.weighting = Weighting::none;
  p.sums = layer.format.sums;
  p.activation = fusion.activation;
  p.interleaved = fusion.interleaved;
}

}  // namespace

std::string_view name(LayerMatrix matrix) {
  constexpr std::string_view kNames[] = {"X", "W", "Y", "dX", "dW", "dY", "dweights", "bias", "H", "dH", "y_scales"};
  return kNames[static_cast<size_t>(matrix)];
}

std::string_view name(RowOrder order) {
  constexpr std::string_view kNames[] = {"in_place", "by_token", "by_slot"};
  return kNames[static_cast<size_t>(order)];
}

std::string_view name(Weighting weighting) {
  constexpr std::string_view kNames[] = {"none", "rounded_result", "result", "a"};
  return kNames[static_cast<size_t>(weighting)];
}

Product product_of(const Shape& shape) { return product_of(Problem{.shape = shape}); }

Product product_of(const Problem& problem) {
  Product p;
  set_operands(p, problem);
  p.m_sizes = problem.routing.m_sizes;
  p.first_rows.assign(p.m_sizes.size() + 1, 0);
  std::partial_sum(p.m_sizes.begin(), p.m_sizes.end(), p.first_rows.begin() + 1, std::plus<int64_t>());
  p.gather_indices = problem.routing.gather_indices;
  p.top_k = problem.routing.top_k;
  p.slots = slots_of(problem);
  p.seed = problem.seed;
  return p;
}

bool feeds(const Shape& up, const Shape& down) {
  const Layer &wide = up.layer, &narrow = down.layer;
  if (up.op != Op::fwd || down.op != Op::fwd || wide.projection != Projection::up ||
      narrow.projection != Projection::down)
    return false;
  Layer expected = wide;
  expected.projection = Projection::down, expected.n = narrow.n, expected.k = narrow.k;
  if (has_scales(wide.format.y))
    expected.format = find_format(wide.format.dtype, wide.format.scales, narrow.format.y.dtype);
  if (narrow != expected || narrow.n != wide.k) return false;
  const Operand y = product_of(up).d, x = product_of(down).a;
  return y.columns == x.columns && y.order == x.order && y.type == x.type;
}

bool weights_result(const Product& product) { return weighs_result(product.weighting); }

bool sums_slots(const Product& product) { return product.d.order == RowOrder::by_token; }

int64_t columns_per_output(const Product& product) { return combines_gates(product) ? 2 : 1; }

GatePair gate_pair(const Product& product, int64_t column) {
  if (!combines_gates(product)) return {column, column};
  return pair_at(product.interleaved, product.d.columns, column);
}

Operand scales_of_result(const Product& product) {
  Operand scales = product.d;
  scales.matrix = LayerMatrix::y_scales, scales.type = plain_type(Dtype::fp32);
  scales.columns = ceil_divide(product.d.columns, product.d.type.scales.columns);
  return scales;
}

}  // namespace moetune
