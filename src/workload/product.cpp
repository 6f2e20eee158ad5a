// Makes the product of a problem, and computes what follows from it.
#include "workload/product.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace moetune {
namespace {

int64_t ceil_divide(int64_t value, int64_t by) { return (value + by - 1) / by; }

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
  p.activation = fusion.silu      ? Activation::silu
                 : fusion.gelu    ? Activation::gelu
                 : fusion.gpt_oss ? Activation::gpt_oss
                                  : Activation::none;
  p.interleaved = fusion.interleaved;
}

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

constexpr double kGptOssSlope = 1.702, kGptOssLimit = 7;
double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

float stored_with(uint64_t seed, const Operand& operand, Values values, int64_t index, int most = 4) {
  const Dtype dtype = operand.type.dtype;
  const float spread = values == Values::integer ? 1.0f : dtype == Dtype::int8 ? 32.0f : bits(dtype) == 4 ? 3.0f : 1.0f;
  return round_to(dtype,
                  spread * operand_value(values, seed, stream_of(operand.matrix), static_cast<uint64_t>(index), most));
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
  if (has_scales(wide.format.y)) expected.format = find_format(wide.format.dtype, wide.format.scales, narrow.format.y.dtype);
  if (narrow != expected || narrow.n != wide.k) return false;
  const Operand y = product_of(up).d, x = product_of(down).a;
  return y.columns == x.columns && y.order == x.order && y.type == x.type;
}

bool is_moved(const Product& product, const Operand& operand) {
  if (operand.order != RowOrder::in_place) return true;
  if (operand.matrix == product.a.matrix) return product.weighting == Weighting::a;
  return operand.matrix == product.d.matrix &&
         (weights_result(product) || is_finished(product) || product.gate_gradient.has_value());
}

Product in_expert_order(const Product& product) {
  Product plain = without_finish(product);
  const auto put_in_order = [&](const Operand& operand, Operand& ordered) {
    if (is_moved(product, operand)) ordered.order = RowOrder::in_place, ordered.rows = owned_rows(product, operand);
  };
  put_in_order(product.a, plain.a);
  put_in_order(product.b, plain.b);
  put_in_order(product.d, plain.d);
  if (product.weighting == Weighting::result || product.gate_gradient) plain.d.type = plain_type(Dtype::fp32);
  plain.weighting = Weighting::none;
  plain.weight_gradient.reset();
  return plain;
}

bool weights_result(const Product& product) { return weighs_result(product.weighting); }

bool sums_slots(const Product& product) { return product.d.order == RowOrder::by_token; }

Slopes slopes(Activation activation, double gate, double up) {
  constexpr double kRootOf2Pi = 2.5066282746310002;
  if (activation == Activation::gelu) {
    const double below = (1 + std::erf(gate / std::sqrt(2.0))) / 2;
    return {(below + gate * std::exp(-gate * gate / 2) / kRootOf2Pi) * up, gate * below};
  }
  const bool limited = activation == Activation::gpt_oss;
  const double slope = limited ? kGptOssSlope : 1, g = limited ? std::min(gate, kGptOssLimit) : gate;
  const double s = sigmoid(slope * g), of_gate = s + slope * g * s * (1 - s);
  if (!limited) return {of_gate * up, g * s};
  const bool inside = up >= -kGptOssLimit && up <= kGptOssLimit;
  return {gate <= kGptOssLimit ? of_gate * (std::clamp(up, -kGptOssLimit, kGptOssLimit) + 1) : 0, inside ? g * s : 0};
}

int64_t joined_columns(const Product& product) { return joins_gates(product) ? 2 : 1; }

JoinedColumns joined(const Product& product, int64_t column) {
  if (!joins_gates(product)) return {column, column};
  return pair_at(product.interleaved, product.d.columns, column);
}

Product without_finish(const Product& product) {
  Product plain = product;
  plain.d.columns = product.n;
  if (quantises(product)) plain.d.type = plain_type(Dtype::bf16);
  plain.activation = Activation::none, plain.interleaved = false;
  plain.bias.reset(), plain.h.reset();
  plain.gate_gradient.reset();
  return plain;
}

Operand scales_of_result(const Product& product) {
  Operand scales = product.d;
  scales.matrix = LayerMatrix::y_scales, scales.type = plain_type(Dtype::fp32);
  scales.columns = ceil_divide(product.d.columns, product.d.type.scales.columns);
  return scales;
}

double activate(Activation activation, double gate, double up) {
  if (activation == Activation::gelu) return gate * (1 + std::erf(gate / std::sqrt(2.0))) / 2 * up;
  if (activation == Activation::silu) return gate / (1 + std::exp(-gate)) * up;
  const double most = std::min(gate, kGptOssLimit);
  return most * sigmoid(kGptOssSlope * most) * (std::clamp(up, -kGptOssLimit, kGptOssLimit) + 1);
}

bool takes_another_pass(const Product& product) {
  return sums_slots(product) || product.weight_gradient || product.gate_gradient;
}

Product before_last_pass(const Product& product, bool makes_gates) {
  if (!takes_another_pass(product) || (makes_gates && product.gate_gradient)) return product;
  Product first = without_finish(product);
  first.d.order = RowOrder::in_place;
  first.d.rows = routed_rows(product);
  if (sums_slots(product)) return first;
  first.d.type = plain_type(Dtype::fp32);
  first.weighting = Weighting::none;
  first.weight_gradient.reset();
  return first;
}

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

ValueStream stream_of(LayerMatrix matrix) {
  if (matrix == LayerMatrix::w || matrix == LayerMatrix::dw) return kStreamW;
  return matrix == LayerMatrix::x || matrix == LayerMatrix::h ? kStreamX : kStreamDy;
}

float topk_weight(const Product& product, Values values, int64_t slot) {
  const float weight = operand_value(values, product.seed, kStreamWeights, static_cast<uint64_t>(slot));
  return has_exact_weights(product, values) ? std::ceil(4 * weight) / 4 : weight;
}

bool has_exact_weights(const Product& product, Values values) {
  return (product.weighting == Weighting::a || sums_slots(product)) && values == Values::integer;
}

int most_integer(const Product& product, const Operand& operand) {
  const bool wide = operand.type.dtype == Dtype::fp8 && product.sums != Sums::fast && product.d.type.dtype != Dtype::fp16;
  return wide ? 16 : 4;
}

float stored_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  return stored_with(product.seed, operand, values, index, most_integer(product, operand));
}

int64_t row_bytes(const Operand& operand) { return operand.columns * bits(operand.type.dtype) / 8; }

int64_t zero_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column) {
  const ScaleStrides strides = scale_strides(product, operand);
  const int64_t even = expert * strides.expert + row / 2 * 2 * strides.row;  // of both rows
  return even + column / operand.type.scales.columns * 2 + row % 2;
}

float zero_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  return stored_with(scale_seed(product.seed, operand), operand, values, index);
}

double entering_value(const Product& product, const Operand& operand, Values values, int64_t expert, int64_t row,
                      int64_t column) {
  const int64_t at = memory_row(product, operand, expert, row) * operand.columns + column;
  double value = static_cast<double>(stored_value(product, operand, values, at));
  if (operand.type.zero_points)
    value -= static_cast<double>(
        zero_value(product, operand, values, zero_index(product, operand, expert, row, column)));
  if (!has_scales(operand.type)) return value;
  value *=
      static_cast<double>(scale_value(product, operand, values, scale_index(product, operand, expert, row, column)));
  return scales_stage(operand.type) ? static_cast<double>(round_to(operand.type.stage, static_cast<float>(value)))
                                    : value;
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

uint64_t scale_seed(uint64_t seed, const Operand& operand) {
  return splitmix64(seed) + static_cast<uint64_t>(operand.matrix);
}

float scale_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  const float uniform = operand_value(values, scale_seed(product.seed, operand), kStreamWeights,
                                      static_cast<uint64_t>(index));  // in (0, 1]
  if (values == Values::random)
    return round_to(operand.type.scales.dtype, (uniform + 0.5f) / (operand.type.dtype == Dtype::int8 ? 32 : 1));
  return uniform <= 1.0f / 3 ? 0.5f : uniform <= 2.0f / 3 ? 1.0f : 2.0f;
}

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
