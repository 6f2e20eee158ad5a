// Expressions, kept as the formulas that they print, and those of launches.
#include "variant/pack/launch_rule.h"

#include <fmt/format.h>

#include <cctype>
#include <cstddef>
#include <stdexcept>

#include "kernels/args.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

constexpr int kBoxBytes = 128;  // a row of the 128-byte swizzle

// How tightly an operator binds: sums least.
int strength(char operation) { return operation == 0 ? 3 : operation == '+' || operation == '-' ? 1 : 2; }

Expression letter(Axis axis) { return axis == Axis::m ? "m" : axis == Axis::n ? "n" : "k"; }

Expression stride_of(const Product& product, const Operand& operand) {
  const Expression columns = columns_expression(product, operand);
  const int64_t bits_each = bits(operand.type.dtype);
  return bits_each % 8 == 0 ? columns * (bits_each / 8) : columns / Expression(8 / bits_each);
}

MapRule map_of(const Product& product, std::string field, std::string pointer, const Operand& operand, int box_rows) {
  return {.field = std::move(field),
          .pointer = std::move(pointer),
          .dtype = operand.type.dtype,
          .sizes = {columns_expression(product, operand)},
          .strides = {stride_of(product, operand)},
          .box_columns = kBoxBytes / static_cast<int>(size_bytes(operand.type.dtype)),
          .box_rows = box_rows,
          .l2_promotion = 128};
}

// A row-major matrix. One without rows gets one, which is never read: a tensor map cannot be empty.
MapRule matrix(MapRule map, const Expression& rows) {
  map.sizes.push_back(max(1, rows));
  return map;
}

// Matrices of so many rows, one after another.
MapRule matrices(MapRule map, const Expression& count, const Expression& rows) {
  map.sizes.insert(map.sizes.end(), {rows, count});
  map.strides.push_back(map.strides.front() * rows);
  return map;
}

// Rows of W whose columns of the product are combined (kernels/args.h): [experts, n / 16, gate or up, 8, k].
MapRule combined_rows(MapRule map, const Product& product) {
  const Expression row = map.strides.front(), half = "n" / Expression(2) * row;
  map.sizes.insert(map.sizes.end(), {8, 2, "n" / Expression(16), "experts"});
  map.strides = product.interleaved ? std::vector<Expression>{2 * row, row, 16 * row}
                                    : std::vector<Expression>{row, half, 8 * row};
  map.strides.push_back("n" * row);
  return map;
}

// Rows that end where an expert's do: see kRaggedRows. Addresses are modulo 2^64, so that the last dimension takes back
// the kRaggedRows rows by which the second is ahead: kRaggedRows * 2^34 = 2^64.
MapRule ragged(MapRule map) {
  map.sizes.insert(map.sizes.end(), {int64_t{kRaggedRows}, int64_t{kMaxMapRows}, int64_t{kMaxMapRows}});
  map.strides.push_back(map.strides.front());
  map.strides.push_back(Expression(int64_t{1} << 34) - map.strides.front());
  return map;
}

std::vector<MapRule> maps_of(const LaunchPlan& plan, const Product& product) {
  const Operand &a = product.a, &b = product.b, &d = product.d;
  const bool gathers_b = plan.gathers_first && b.order != RowOrder::in_place;
  const bool gathers_a = plan.gathers_first && !gathers_b;
  const std::string x = gathers_a ? "gathered_rows" : "x";
  const Expression x_rows = gathers_a ? "rows" : "x_rows", w_rows = letter(b.row_axis);  // w: of one expert
  std::vector<MapRule> maps;
  if (plan.x_box > 0) {
    const MapRule map = map_of(product, "x_map", x, a, plan.x_box);
    maps.push_back(is_k_major(a) ? matrix(map, x_rows) : ragged(map));
  }
  if (plan.x_rest > 0) maps.push_back(matrix(map_of(product, "x_rest_map", x, a, plan.x_rest), x_rows));
  if (plan.w_box > 0) {
    const MapRule map = map_of(product, "w_map", gathers_b ? "gathered_rows" : "w", b, plan.w_box);
    const bool one = plan.maps > 0;  // blocks move it from expert to expert
    if (columns_per_output(product) > 1)
      maps.push_back(combined_rows(map, product));
    else if (is_k_major(b))
      maps.push_back(matrix(map, one ? w_rows : "w_rows"));
    else if (is_ragged(product, b))
      maps.push_back(ragged(map));
    else  // steps along k end where the expert's do: what lies behind them must not be multiplied
      maps.push_back(matrices(map, one ? Expression(1) : "experts", w_rows));
  }
  if (plan.y_box > 0) {  // stored: promotion means nothing
    maps.push_back(ragged(map_of(product, "y_map", "y", d, plan.y_box)));
    maps.back().l2_promotion = 0;
  }
  return maps;
}

// A bound on tiles that needs no row counts: every expert may end in a partial tile or, where the blocks of a cluster
// walk together, in tiles of which all but one are empty.
Expression grid_of(const LaunchPlan& plan, const Product& product) {
  const int cluster = plan.cluster;
  const Expression ends = min(Expression("experts"), "rows"), partial = cluster == 1 ? ends : cluster * ends;
  const Expression down = product.ragged == Axis::k ? "experts" * ceil_div(Expression("m"), plan.tile_rows)
                                                    : "rows" / Expression(plan.tile_rows) + partial;
  const Expression across = ceil_div(Expression("n"), plan.tile_columns);
  Expression tiles = down * (cluster == 1 ? across : across + (cluster - 1));
  if (plan.pieces > 1) tiles = tiles * plan.pieces;
  const Expression blocks = min(max(tiles, 1), "held");
  return cluster == 1 ? blocks : ceil_div(blocks, cluster) * cluster;
}

std::vector<BufferRule> buffers_of(const LaunchPlan& plan, const Product& product) {
  const auto words = [](const Expression& count) { return count * 4; };
  std::vector<BufferRule> buffers = {
      {"counters", words(Expression(first_arrival) + Expression(arrivals_per_sm) * "processors"), true}};
  if (plan.workspace > 0) buffers.push_back({"workspace", "blocks" * Expression(plan.workspace)});
  if (plan.maps > 0)
    buffers.push_back({"maps", "blocks" * Expression(int64_t{plan.maps} * int64_t{sizeof(TensorMap)})});
  if (plan.gate_parts > 0 && product.weight_gradient)
    buffers.push_back({"parts", words(max(Expression(1), "rows") * count_of_parts(plan))});
  if (plan.gathers_first) {
    const Operand& gathered = product.b.order != RowOrder::in_place ? product.b : product.a;
    buffers.push_back({"gathered_rows", max(Expression(1), "rows") * stride_of(product, gathered)});
    buffers.push_back({"gathered", words(max("rows" / Expression(gathered_together) + 1, "experts")), true});
  }
  return buffers;
}

}  // namespace

Expression::Expression(int64_t constant) : text_(std::to_string(constant)) {}
Expression::Expression(std::string_view name) : text_(name) {}
Expression::Expression(std::string_view function, const Expression& a, const Expression& b)
    : text_(fmt::format("{}({}, {})", function, a.text_, b.text_)) {}

Expression::Expression(char operation, const Expression& a, const Expression& b) : operation_(operation) {
  const bool associates = operation == '+' || operation == '*';
  const auto part = [&](const Expression& side, bool bare) {
    bare = bare || strength(side.operation_) > strength(operation);
    return bare ? side.text_ : fmt::format("({})", side.text_);
  };
  text_ = fmt::format("{} {} {}", part(a, strength(a.operation_) == strength(operation)), operation,
                      part(b, associates && b.operation_ == operation));
}

int64_t Expression::value(const Sizes& sizes) const { return Formula::evaluate(text_, sizes); }

Expression count_of_parts(const LaunchPlan& plan) {
  return ceil_div(Expression("n"), plan.tile_columns) * plan.gate_parts;
}

Sizes sizes_of(const Product& product) {
  const ScaleStrides x = scale_strides(product, product.a), w = scale_strides(product, product.b);
  return {{"m", product.m},           {"n", product.n},
          {"k", product.k},           {"experts", experts(product)},
          {"top_k", product.top_k},   {"rows", routed_rows(product)},
          {"slots", product.slots},   {"tokens", product.slots / product.top_k},
          {"x_rows", product.a.rows}, {"w_rows", product.b.rows},
          {"y_rows", product.d.rows}, {"x_scale_row", x.row},
          {"x_scale_step", x.column}, {"w_scale_expert", w.expert},
          {"w_scale_row", w.row},     {"w_scale_step", w.column}};
}

MapShape evaluate(const MapRule& rule, const Sizes& sizes) {
  MapShape shape{.pointer = rule.pointer,
                 .dtype = std::string(name(rule.dtype)),
                 .box_columns = rule.box_columns,
                 .box_rows = rule.box_rows,
                 .l2_promotion = rule.l2_promotion};
  for (const Expression& size : rule.sizes) shape.sizes.push_back(static_cast<uint64_t>(size.value(sizes)));
  for (const Expression& stride : rule.strides) shape.strides.push_back(static_cast<uint64_t>(stride.value(sizes)));
  return shape;
}

LaunchRule launch_rule(const LaunchPlan& plan, const Product& product) {
  return {.grid = grid_of(plan, product),
          .cooperative = plan.waits,
          .follows = plan.follows,
          .maps = maps_of(plan, product),
          .buffers = buffers_of(plan, product)};
}

const std::vector<ArgsField>& args_fields() {
  using Kind = ArgsField::Kind;
  static const std::vector<ArgsField> fields = {{"x", offsetof(Args, x)},
                                                {"w", offsetof(Args, w)},
                                                {"y", offsetof(Args, y)},
                                                {"m_sizes", offsetof(Args, m_sizes)},
                                                {"gather_indices", offsetof(Args, gather_indices)},
                                                {"topk_weights", offsetof(Args, topk_weights)},
                                                {"n", offsetof(Args, n), Kind::int64},
                                                {"k", offsetof(Args, k), Kind::int64},
                                                {"experts", offsetof(Args, experts), Kind::int32},
                                                {"top_k", offsetof(Args, top_k), Kind::int32},
                                                {"counters", offsetof(Args, counters)},
                                                {"workspace", offsetof(Args, workspace)},
                                                {"gathered_rows", offsetof(Args, gathered_rows)},
                                                {"gathered", offsetof(Args, gathered)},
                                                {"x_of", offsetof(Args, x_of)},
                                                {"w_of", offsetof(Args, w_of)},
                                                {"y_of", offsetof(Args, y_of)},
                                                {"maps", offsetof(Args, maps)},
                                                {"m", offsetof(Args, m), Kind::int64},
                                                {"x_scales", offsetof(Args, x_scales)},
                                                {"w_scales", offsetof(Args, w_scales)},
                                                {"x_scale_row", offsetof(Args, x_scale_row), Kind::int64},
                                                {"x_scale_step", offsetof(Args, x_scale_step), Kind::int64},
                                                {"w_scale_expert", offsetof(Args, w_scale_expert), Kind::int64},
                                                {"w_scale_row", offsetof(Args, w_scale_row), Kind::int64},
                                                {"w_scale_step", offsetof(Args, w_scale_step), Kind::int64},
                                                {"bias", offsetof(Args, bias)},
                                                {"y_scales", offsetof(Args, y_scales)},
                                                {"y_scale_row", offsetof(Args, y_scale_row), Kind::int64},
                                                {"y_scale_step", offsetof(Args, y_scale_step), Kind::int64},
                                                {"h", offsetof(Args, h)},
                                                {"x_again", offsetof(Args, x_again)},
                                                {"parts", offsetof(Args, parts)},
                                                {"w_zeros", offsetof(Args, w_zeros)}};
  return fields;
}

size_t map_offset(std::string_view field) {
  if (field == "x_map") return offsetof(Args, x_map);
  if (field == "x_rest_map") return offsetof(Args, x_rest_map);
  if (field == "w_map") return offsetof(Args, w_map);
  if (field == "y_map") return offsetof(Args, y_map);
  throw std::logic_error(fmt::format("Args has no tensor map '{}'", field));
}

std::string operand_name(LayerMatrix matrix) {
  std::string lower;
  for (const char c : name(matrix)) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

Expression rows_expression(const Product& product, const Operand& operand) {
  if (!is_ragged(product, operand)) return "experts" * letter(operand.row_axis);
  switch (operand.order) {
    case RowOrder::by_token:
      return "tokens";
    case RowOrder::by_slot:
      return "slots";
    case RowOrder::in_place:
      break;
  }
  return "rows";
}

Expression columns_expression(const Product& product, const Operand& operand) {
  const bool pairs = operand.matrix == LayerMatrix::h || operand.matrix == LayerMatrix::dh;
  if (pairs && product.gate_gradient) return 2 * letter(operand.column_axis);
  const int64_t joined = operand.matrix == product.d.matrix ? columns_per_output(product) : 1;
  return joined == 1 ? letter(operand.column_axis) : letter(operand.column_axis) / Expression(joined);
}

ScalesRule scales_rule(const Product& product, const Operand& operand) {
  const Scales& scales = operand.type.scales;
  const bool of_x = is_ragged(product, operand);
  const std::string prefix = of_x ? "x_" : "w_";
  ScalesRule rule{.name = prefix + "scales", .dtype = name(scales.dtype)};
  const auto add = [&](const Expression& side, std::string_view stride) {
    rule.shape.push_back(side), rule.strides.push_back(fmt::format("{}scale_{}", prefix, stride));
  };
  if (!of_x) add("experts", "expert");
  if (scales.kind != ScaleKind::tensor) {
    const Expression rows = of_x ? rows_expression(product, operand) : letter(operand.row_axis);
    add(scales.rows > 1 ? ceil_div(rows, scales.rows) : rows, "row");
  }
  if (scales.kind == ScaleKind::block) add(ceil_div(columns_expression(product, operand), scales.columns), "step");
  if (rule.shape.empty()) rule.shape.push_back(1);
  return rule;
}

}  // namespace moetune
