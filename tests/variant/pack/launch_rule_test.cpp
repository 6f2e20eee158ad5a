// Formulas of launches against real problems, whose sizes are known, and against numbers worked out by hand.
#include "variant/pack/launch_rule.h"

#include <gtest/gtest.h>

#include "kernels/args.h"
#include "variant/unit.h"
#include "workload/product/passes.h"
#include "workload/product/scale_places.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

Shape shape_of(Op op, const Fusion& fusion) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 6, .top_k = 2, .n = 256, .k = 512, .format = find_format("bf16")};
  shape.op = op, shape.fusion = fusion;
  require_valid(shape);
  return shape;
}

std::vector<Shape> shapes() {
  std::vector<Shape> shapes;
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true},
                                 Fusion{.permute_y = true, .topk_weights = true}})
      shapes.push_back(shape_of(op, fusion));
  shapes.push_back(shape_of(Op::dx, {.permute_x = true, .sum_slots = true}));
  shapes.push_back(shape_of(Op::dx, {.permute_y = true, .topk_weights = true, .weight_gradient = true}));
  shapes.push_back(shape_of(Op::dw, {.accumulate = true, .fp32_dw = true}));
  return shapes;
}

Problem problem_of(const Shape& shape) {
  return make_problem({.shape = shape, .tokens = 40, .routing = parse_routing("zipf:1.0"), .seed = 3});
}

TEST(Expression, PrintsTheFormulaOfItsValue) {
  const Sizes sizes = {{"m", 7}, {"n", 100}, {"held", 3}};
  const Expression m = "m", n = "n";
  const std::pair<Expression, std::string> cases[] = {
      {m * n * 2, "m * n * 2"},
      {m * (n * 2), "m * n * 2"},
      {(m + n) * 2 - (n - m), "(m + n) * 2 - (n - m)"},
      {n / (m / 2), "n / (m / 2)"},
      {n * 2 / m, "n * 2 / m"},
      {n * (m / 2), "n * (m / 2)"},
      {ceil_div(min(max(n, 1), "held"), 2) * 2, "ceil_div(min(max(n, 1), held), 2) * 2"},
      {Expression(int64_t{1} << 34) - n * 2, "17179869184 - n * 2"},
  };
  for (const auto& [expression, text] : cases) {
    EXPECT_EQ(expression.text(), text);
    EXPECT_EQ(expression.value(sizes), Formula::evaluate(text, sizes)) << text;
  }
  EXPECT_THROW(static_cast<void>(Expression("k").value(sizes)), std::invalid_argument);
}

TEST(LaunchRule, SizesOfOperandsAreThoseOfTheProblem) {
  for (const Shape& shape : shapes()) {
    const Product product = product_of(problem_of(shape));
    const Product unbound = product_of(shape);  // what an export knows
    const Sizes sizes = sizes_of(product);
    const auto expect_same = [&](const Operand& real, const Operand& known) {
      EXPECT_EQ(rows_expression(unbound, known).value(sizes), real.rows) << title(shape) << name(real.matrix);
      EXPECT_EQ(columns_expression(unbound, known).value(sizes), real.columns) << title(shape) << name(real.matrix);
    };
    expect_same(product.a, unbound.a);
    expect_same(product.b, unbound.b);
    expect_same(product.d, unbound.d);
  }
}

TEST(LaunchRule, ScalesOfOperandsAreThoseOfTheProblemRowByRow) {
  for (const ScaleKind kind : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor}) {
    Shape shape = shape_of(Op::fwd, {.permute_x = true});
    shape.layer.format = find_format("fp8", kind), shape.layer.n = 200, shape.layer.k = 300;
    const Product product = product_of(problem_of(shape));
    const Sizes sizes = sizes_of(product);
    for (const Operand* operand : {&product.a, &product.b}) {
      const ScalesRule rule = scales_rule(product, *operand);
      int64_t count = 1;
      for (size_t i = rule.shape.size(); i-- > 0; count *= rule.shape[i].value(sizes)) {
        if (rule.strides.empty()) continue;
        EXPECT_EQ(sizes.at(rule.strides[i]), count) << rule.strides[i];
      }
      EXPECT_EQ(count, scale_count(product, *operand)) << rule.name;
    }
  }
}

TEST(LaunchRule, GridsHoldAllTilesAndNoMoreThanTheDevice) {
  for (const Shape& shape : shapes()) {
    const Problem problem = problem_of(shape);
    const Product product = product_of(problem);
    for (const int cluster : {1, 2}) {
      const LaunchPlan plan = {.threads = 128, .cluster = cluster, .tile_rows = 16, .tile_columns = 64, .pieces = 2};
      const LaunchRule rule = launch_rule(plan, before_last_pass(product));
      Sizes sizes = sizes_of(product);
      sizes["held"] = 32;
      EXPECT_EQ(rule.grid.value(sizes), 32) << title(shape);
      sizes["held"] = 1000000;
      const int64_t blocks = rule.grid.value(sizes);
      EXPECT_GE(blocks, 2 * tiles_of(16, 64, problem)) << title(shape);
      EXPECT_EQ(blocks % cluster, 0);
    }
  }
}

TEST(LaunchRule, AGridIsThatOfTheBoundOfItsTiles) {
  const LaunchPlan plan = {.tile_rows = 16, .tile_columns = 100};
  const LaunchRule rule = launch_rule(plan, product_of(shape_of(Op::fwd, {})));
  Sizes sizes = {{"rows", 80}, {"experts", 6}, {"n", 256}, {"held", 1000}};
  EXPECT_EQ(rule.grid.value(sizes), (80 / 16 + 6) * 3);
  sizes["rows"] = 0;
  EXPECT_EQ(rule.grid.value(sizes), 1);
  const LaunchRule sums = launch_rule(plan, product_of(shape_of(Op::dw, {})));
  EXPECT_EQ(sums.grid.value({{"m", 256}, {"n", 512}, {"experts", 6}, {"held", 9999}}), 6 * 16 * 6);
}

TEST(LaunchRule, MapsOfAForwardProductAreItsMatricesAndARaggedResult) {
  const LaunchPlan plan = {.x_box = 64, .x_rest = 16, .w_box = 128, .y_box = 8};
  const Product product = product_of(problem_of(shape_of(Op::fwd, {})));
  const std::vector<MapRule> maps = launch_rule(plan, product).maps;
  ASSERT_EQ(maps.size(), 4u);
  const Sizes sizes = sizes_of(product);
  const auto values = [&](const std::vector<Expression>& expressions) {
    std::vector<int64_t> result;
    for (const Expression& expression : expressions) result.push_back(expression.value(sizes));
    return result;
  };
  using Values = std::vector<int64_t>;
  EXPECT_EQ(maps[0].field, "x_map");
  EXPECT_EQ(values(maps[0].sizes), (Values{512, 80}));
  EXPECT_EQ(values(maps[0].strides), (Values{1024}));
  EXPECT_EQ(maps[1].box_rows, 16);
  EXPECT_EQ(values(maps[2].sizes), (Values{512, 6 * 256}));
  EXPECT_EQ(values(maps[3].sizes), (Values{256, kRaggedRows, 0x7fff0000, 0x7fff0000}));
  EXPECT_EQ(maps[3].pointer, "y");
  EXPECT_EQ(maps[3].l2_promotion, 0);
}

TEST(LaunchRule, MapsOfARaggedKReturnToTheMatrixModulo64Bits) {
  const LaunchPlan plan = {.x_box = 64, .w_box = 64, .gathers_first = true};
  const Product product = product_of(problem_of(shape_of(Op::dw, {.permute_x = true})));
  const LaunchRule rule = launch_rule(plan, product);
  ASSERT_EQ(rule.maps.size(), 2u);
  EXPECT_EQ(rule.maps[0].pointer, "x");
  EXPECT_EQ(rule.maps[1].pointer, "gathered_rows");  // X is the second operand of dW
  const Sizes sizes = sizes_of(product);
  const MapRule& map = rule.maps[1];
  const auto stride = [&](size_t i) { return static_cast<uint64_t>(map.strides[i].value(sizes)); };
  EXPECT_EQ(stride(0), 1024u);
  // Coordinates (row + kRaggedRows - depth, end, kRaggedRows) lead to row `row` of those that end at `end`.
  const uint64_t rows = kRaggedRows, depth = 5, end = 37, row = 2;
  EXPECT_EQ((row + rows - depth) * stride(0) + end * stride(1) + rows * stride(2), (end - depth + row) * 1024);
}

TEST(LaunchRule, BuffersAreThoseThatThePlanAsksFor) {
  const Product product = product_of(problem_of(shape_of(Op::fwd, {.permute_x = true})));
  Sizes sizes = sizes_of(product);
  sizes["blocks"] = 10, sizes["processors"] = 132;
  const auto bytes = [&](const LaunchRule& rule, std::string_view name) -> int64_t {
    for (const BufferRule& buffer : rule.buffers)
      if (buffer.name == name) return buffer.bytes.value(sizes);
    return -1;
  };
  const LaunchRule plain = launch_rule({}, product);
  EXPECT_EQ(bytes(plain, "counters"), (first_arrival + arrivals_per_sm * 132) * 4);
  EXPECT_EQ(bytes(plain, "workspace"), -1);
  const LaunchRule all = launch_rule({.workspace = 4096, .maps = 6, .gathers_first = true, .waits = true}, product);
  EXPECT_TRUE(all.cooperative);
  EXPECT_EQ(all.follows, Follows::none);
  EXPECT_EQ(launch_rule({.follows = Follows::up}, product).follows, Follows::up);
  EXPECT_EQ(bytes(all, "workspace"), 40960);
  EXPECT_EQ(bytes(all, "maps"), 10 * 6 * 128);
  EXPECT_EQ(bytes(all, "gathered_rows"), 80 * 512 * 2);
  EXPECT_EQ(bytes(all, "gathered"), 6 * 4);
}

}  // namespace
}  // namespace moetune
