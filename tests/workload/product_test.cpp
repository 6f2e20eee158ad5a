// What each op multiplies under each fusion: sizes, axes, where rows lie, work and bytes.
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"
#include "workload/product/values.h"
#include "workload/product/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace moetune {
namespace {

using Rows = std::vector<int64_t>;

constexpr Op kOps[] = {Op::fwd, Op::dx, Op::dw};

// 4 experts of 6 x 10, top_k 2; 3 tokens: rows 3 0 2 1 of experts.
Problem small(Op op = Op::fwd, Fusion fusion = {}) {
  const Layer layer{.model = "custom", .experts = 4, .top_k = 2, .n = 6, .k = 10};
  return {{layer, op, fusion}, routing_from_rows({3, 0, 2, 1}, 3, 2), 5};
}
Product product(Op op = Op::fwd, Fusion fusion = {}) { return product_of(small(op, fusion)); }

Rows slots_of(const Product& p) { return {p.gather_indices.begin(), p.gather_indices.end()}; }
Rows tokens_of(const Product& p) {
  Rows tokens;
  for (const int32_t slot : p.gather_indices) tokens.push_back(slot / 2);
  return tokens;
}
const Rows kInPlace = {0, 1, 2, 3, 4, 5};

TEST(Product, OfForwardIsXTimesW) {
  const Product p = product();
  EXPECT_EQ(name(p.a.matrix), "X");
  EXPECT_EQ(name(p.b.matrix), "W");
  EXPECT_EQ(name(p.d.matrix), "Y");
  EXPECT_EQ(p.ragged, Axis::m);
  EXPECT_EQ(p.n, 6);
  EXPECT_EQ(p.k, 10);
  EXPECT_EQ(p.a.rows, 6);
  EXPECT_EQ(p.a.columns, 10);
  EXPECT_EQ(p.b.rows, 4 * 6);
  EXPECT_EQ(p.b.columns, 10);
  EXPECT_EQ(p.d.rows, 6);
  EXPECT_EQ(p.d.columns, 6);
  EXPECT_TRUE(is_k_major(p.a));
  EXPECT_TRUE(is_k_major(p.b));
}
TEST(Product, OfDxIsDyTimesWAcrossItsRows) {
  const Product p = product(Op::dx);
  EXPECT_EQ(name(p.a.matrix), "dY");
  EXPECT_EQ(name(p.b.matrix), "W");
  EXPECT_EQ(name(p.d.matrix), "dX");
  EXPECT_EQ(p.ragged, Axis::m);
  EXPECT_EQ(p.n, 10);
  EXPECT_EQ(p.k, 6);
  EXPECT_EQ(p.a.columns, 6);
  EXPECT_EQ(p.b.rows, 4 * 6);
  EXPECT_EQ(p.b.columns, 10);
  EXPECT_EQ(p.d.columns, 10);
  EXPECT_TRUE(is_k_major(p.a));
  EXPECT_FALSE(is_k_major(p.b));
}
TEST(Product, OfDwIsDyTimesXBothAcrossTheirRows) {
  const Product p = product(Op::dw);
  EXPECT_EQ(name(p.a.matrix), "dY");
  EXPECT_EQ(name(p.b.matrix), "X");
  EXPECT_EQ(name(p.d.matrix), "dW");
  EXPECT_EQ(p.ragged, Axis::k);
  EXPECT_EQ(p.m, 6);
  EXPECT_EQ(p.n, 10);
  EXPECT_EQ(extent(p, 0, Axis::k), 3);
  EXPECT_EQ(extent(p, 1, Axis::k), 0);
  EXPECT_EQ(p.a.columns, 6);
  EXPECT_EQ(p.b.columns, 10);
  EXPECT_EQ(p.d.rows, 4 * 6);
  EXPECT_EQ(p.d.columns, 10);
  EXPECT_FALSE(is_k_major(p.a));
  EXPECT_FALSE(is_k_major(p.b));
}
TEST(Product, SharesOutTheRowsOfActivationsOnly) {
  for (const Op op : kOps) {
    const Product p = product(op);
    for (const Operand* operand : {&p.a, &p.b, &p.d}) {
      const bool weights = operand->matrix == LayerMatrix::w || operand->matrix == LayerMatrix::dw;
      EXPECT_EQ(is_ragged(p, *operand), !weights) << name(operand->matrix);
      EXPECT_EQ(owned_rows(p, *operand), weights ? 4 * 6 : 6) << name(operand->matrix);
      EXPECT_EQ(first_row(p, *operand, 2), weights ? 2 * 6 : 3) << name(operand->matrix);
    }
  }
}

TEST(RowMap, IsInPlaceWithoutFusions) {
  for (const Op op : kOps) {
    const Product p = product(op);
    for (const Operand* operand : {&p.a, &p.b, &p.d}) {
      if (is_ragged(p, *operand)) {
        EXPECT_EQ(row_map(p, *operand), kInPlace) << name(op);
      } else {
        const Rows rows = row_map(p, *operand);
        ASSERT_EQ(rows.size(), 24u);
        for (int64_t row = 0; row < 24; ++row) EXPECT_EQ(rows[row], row);
      }
    }
  }
}
TEST(RowMap, OfPermutedXIsByTokenAndOfItsGradientBySlot) {
  const Fusion fusion{.permute_x = true};
  const Product fwd = product(Op::fwd, fusion), dx = product(Op::dx, fusion), dw = product(Op::dw, fusion);
  EXPECT_EQ(fwd.a.rows, 3);
  EXPECT_EQ(row_map(fwd, fwd.a), tokens_of(fwd));
  EXPECT_EQ(row_map(fwd, fwd.d), kInPlace);
  EXPECT_EQ(row_map(dx, dx.a), kInPlace);
  EXPECT_EQ(dx.d.rows, 6);
  EXPECT_EQ(row_map(dx, dx.d), slots_of(dx));
  EXPECT_EQ(row_map(dw, dw.a), kInPlace);
  EXPECT_EQ(row_map(dw, dw.b), tokens_of(dw));
}
TEST(RowMap, OfPermutedYAndItsGradientIsBySlot) {
  const Fusion fusion{.permute_y = true};
  const Product fwd = product(Op::fwd, fusion), dx = product(Op::dx, fusion), dw = product(Op::dw, fusion);
  EXPECT_EQ(row_map(fwd, fwd.a), kInPlace);
  EXPECT_EQ(row_map(fwd, fwd.d), slots_of(fwd));
  EXPECT_EQ(row_map(dx, dx.a), slots_of(dx));
  EXPECT_EQ(row_map(dx, dx.d), kInPlace);
  EXPECT_EQ(row_map(dw, dw.a), slots_of(dw));
  EXPECT_EQ(row_map(dw, dw.b), kInPlace);
}
TEST(RowMap, BySlotIsOfXAndY) {
  const Product down = product(Op::fwd, {.topk_weights = true, .by_slot = true});
  EXPECT_EQ(row_map(down, down.a), slots_of(down));
  EXPECT_EQ(row_map(down, down.d), slots_of(down));
  EXPECT_EQ(down.a.rows, 6);
  const Product up = product(Op::fwd, {.permute_x = true, .by_slot = true});
  EXPECT_EQ(row_map(up, up.a), tokens_of(up));
  EXPECT_EQ(row_map(up, up.d), slots_of(up));
}
TEST(RowMap, HoldsRowsOfAllRanksInSlotOrder) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 16, .top_k = 4, .n = 64, .k = 32, .ep = 4};
  cell.shape.fusion.permute_y = true;
  cell.tokens = 8;
  for (const Op op : kOps) {
    cell.shape.op = op;
    const Product p = product_of(make_problem(cell));
    const Operand& y = op == Op::fwd ? p.d : p.a;
    EXPECT_LT(owned_rows(p, y), 32) << name(op);
    EXPECT_EQ(y.rows, 32) << name(op);
    EXPECT_EQ(p.slots, 32);
  }
}
TEST(RowMap, IsTheSameWithMoreRowsInMemory) {
  Product p = product();
  p.d.rows = 100;
  EXPECT_EQ(row_map(p, p.d), kInPlace);
  EXPECT_EQ(owned_rows(p, p.d), 6);
}

TEST(RowMap, OfSummedDxIsByToken) {
  const Product p = product(Op::dx, {.permute_x = true, .sum_slots = true});
  EXPECT_TRUE(sums_slots(p));
  EXPECT_EQ(p.d.rows, 3);
  EXPECT_EQ(row_map(p, p.d), tokens_of(p));
  EXPECT_EQ(owned_rows(p, p.d), 6);
  EXPECT_EQ(row_map(p, p.a), kInPlace);
  for (const Op op : kOps) EXPECT_FALSE(sums_slots(product(op, {.permute_x = true}))) << name(op);
}
TEST(RowMap, OfALayerThatSumsItsSlotsIsByToken) {
  const Fusion summed{.permute_y = true, .sum_slots = true};
  const Product fwd = product(Op::fwd, summed), dx = product(Op::dx, summed), dw = product(Op::dw, summed);
  EXPECT_TRUE(sums_slots(fwd) && !sums_slots(dx) && !sums_slots(dw));
  for (const Operand& y : {fwd.d, dx.a, dw.a}) EXPECT_EQ(y.rows, 3);
  EXPECT_EQ(row_map(dx, dx.a), tokens_of(dx));
  EXPECT_EQ(row_map(dw, dw.a), tokens_of(dw));
}

TEST(PlaceOf, NamesTheExpertAndItsRow) {
  const Product fwd = product(), dw = product(Op::dw);
  const auto places = [](const Product& p) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (int64_t row = 0; row < owned_rows(p, p.d); ++row) {
      const Place place = place_of(p, p.d, row);
      found.emplace_back(place.expert, place.row);
    }
    return found;
  };
  EXPECT_EQ(places(fwd), (std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 1}, {0, 2}, {2, 0}, {2, 1}, {3, 0}}));
  EXPECT_EQ(places(dw)[0], (std::pair<int64_t, int64_t>{0, 0}));
  EXPECT_EQ(places(dw)[11], (std::pair<int64_t, int64_t>{1, 5}));  // experts without rows have a dW too
  EXPECT_EQ(places(dw)[23], (std::pair<int64_t, int64_t>{3, 5}));
}

TEST(InExpertOrder, IsThePlainProductOfTheSameRows) {
  for (const Op op : kOps)
    for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true}})
      EXPECT_EQ(in_expert_order(product(op, fusion)), product(op)) << name(op) << " " << text(fusion);
}
TEST(InExpertOrder, LeavesWeightsToTheMoves) {
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  EXPECT_EQ(in_expert_order(product(Op::fwd, weighted)), product(Op::fwd));
  EXPECT_EQ(in_expert_order(product(Op::dw, weighted)), product(Op::dw));
  Product dx = product(Op::dx);
  dx.d.type = plain_type(Dtype::fp32);  // not rounded before it is weighted
  EXPECT_EQ(in_expert_order(product(Op::dx, weighted)), dx);
}
TEST(InExpertOrder, LeavesSumsOfSlotsToTheMoves) {
  const Product p = product(Op::dx, {.permute_x = true, .sum_slots = true});
  EXPECT_TRUE(is_moved(p, p.d));
  EXPECT_EQ(in_expert_order(p), product(Op::dx));  // rounded before slots are added
}
TEST(InExpertOrder, HasNoWeightGradient) {
  Fusion fusion{.permute_y = true, .topk_weights = true};
  const Product weighted = in_expert_order(product(Op::dx, fusion));
  fusion.weight_gradient = true;
  EXPECT_EQ(in_expert_order(product(Op::dx, fusion)), weighted);
}
TEST(IsMoved, OfWhatIsGatheredScatteredOrWeighted) {
  const auto moved = [](const Product& p) { return std::array{is_moved(p, p.a), is_moved(p, p.b), is_moved(p, p.d)}; };
  const Fusion x{.permute_x = true}, y{.permute_y = true}, weighted{.permute_y = true, .topk_weights = true};
  for (const Op op : kOps) EXPECT_EQ(moved(product(op)), (std::array{false, false, false})) << name(op);
  EXPECT_EQ(moved(product(Op::fwd, x)), (std::array{true, false, false}));
  EXPECT_EQ(moved(product(Op::fwd, y)), (std::array{false, false, true}));
  EXPECT_EQ(moved(product(Op::dx, x)), (std::array{false, false, true}));
  EXPECT_EQ(moved(product(Op::dx, y)), (std::array{true, false, false}));
  EXPECT_EQ(moved(product(Op::dx, weighted)), (std::array{true, false, true}));
  EXPECT_EQ(moved(product(Op::dw, x)), (std::array{false, true, false}));
  EXPECT_EQ(moved(product(Op::dw, weighted)), (std::array{true, false, false}));
}
TEST(InExpertOrder, KeepsPadding) {
  Product p = product();
  p.a.rows = 16;
  EXPECT_EQ(in_expert_order(p), p);
}

TEST(Weighting, IsWhereTheOpNeedsIt) {
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  EXPECT_EQ(product(Op::fwd, weighted).weighting, Weighting::rounded_result);
  EXPECT_EQ(product(Op::dx, weighted).weighting, Weighting::result);
  EXPECT_EQ(product(Op::dw, weighted).weighting, Weighting::a);
  for (const Op op : kOps) EXPECT_EQ(product(op, {.permute_y = true}).weighting, Weighting::none);
}
TEST(TopkWeight, IsOfItsStreamUnlessSumsWouldRound) {
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  for (const Op op : kOps)
    for (const Values values : {Values::integer, Values::random}) {
      const Product p = product(op, weighted);
      const bool exact = op == Op::dw && values == Values::integer;
      EXPECT_EQ(weight_filling(p, values) == Filling::quarters, exact);
      for (int64_t slot = 0; slot < p.slots; ++slot) {
        const float weight = operand_value(values, p.seed, kStreamWeights, static_cast<uint64_t>(slot));
        const float wanted = exact ? std::ceil(weight * 4) / 4 : weight;
        EXPECT_EQ(topk_weight(p, values, slot), wanted);
      }
    }
}

TEST(StreamOf, IsTheMatrixs) {
  EXPECT_EQ(stream_of(LayerMatrix::x), kStreamX);
  EXPECT_EQ(stream_of(LayerMatrix::w), kStreamW);
  EXPECT_EQ(stream_of(LayerMatrix::dy), kStreamDy);
}

TEST(Scales, AreCountedInBlocks) {
  Product p = product();
  EXPECT_EQ(scale_count(p, p.a), 0);
  p.a.type.scales = block_scales(1, 4);  // of 6 x 10
  EXPECT_EQ(scale_count(p, p.a), 6 * 3);
  EXPECT_EQ(scale_index(p, p.a, 2, 1, 9), 4 * 3 + 2);
  p.b.type.scales = block_scales(4, 8);  // two blocks of rows an expert, the second of two rows
  EXPECT_EQ(scale_count(p, p.b), 4 * 2 * 2);
  EXPECT_EQ(scale_index(p, p.b, 0, 5, 7), 2);
  EXPECT_EQ(scale_index(p, p.b, 1, 0, 8), 5);
}
TEST(Scales, OfChannelsAreOneARow) {
  Product p = product();
  p.a.type.scales.kind = p.b.type.scales.kind = ScaleKind::channel;
  EXPECT_EQ(scale_count(p, p.a), 6);
  EXPECT_EQ(scale_index(p, p.a, 2, 1, 9), 4);
  EXPECT_EQ(scale_count(p, p.b), 4 * 6);
  EXPECT_EQ(scale_index(p, p.b, 1, 2, 9), 6 + 2);
}
TEST(Scales, OfTensorsAreOneAMatrix) {
  Product p = product();
  p.a.type.scales.kind = p.b.type.scales.kind = ScaleKind::tensor;
  EXPECT_EQ(scale_count(p, p.a), 1);
  EXPECT_EQ(scale_index(p, p.a, 2, 1, 9), 0);
  EXPECT_EQ(scale_count(p, p.b), 4);
  EXPECT_EQ(scale_index(p, p.b, 3, 5, 9), 3);
}
TEST(Scales, ArePowersOfTwoForIntegers) {
  Product p = product();
  p.a.type.scales = block_scales(1, 1);
  std::vector<int> seen(3);
  for (int64_t i = 0; i < 60; ++i) {
    const float value = scale_value(p, p.a, Values::integer, i);
    ASSERT_TRUE(value == 0.5f || value == 1 || value == 2) << value;
    ++seen[value == 0.5f ? 0 : value == 1 ? 1 : 2];
    const float random = scale_value(p, p.a, Values::random, i);
    EXPECT_GT(random, 0.5f);
    EXPECT_LE(random, 1.5f);
  }
  for (const int count : seen) EXPECT_GT(count, 8);
}

// Where a scale lies, by its strides and by its index.
TEST(Fp8, ScalesLieByTheirStrides) {
  for (const ScaleKind kind : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor}) {
    Cell cell;
    cell.shape.layer = {
        .model = "custom", .experts = 3, .top_k = 2, .n = 200, .k = 300, .format = find_format("fp8", kind)};
    cell.shape.fusion.permute_x = true;
    cell.tokens = 9;
    cell.routing = parse_routing("uniform");
    const Product p = product_of(make_problem(cell));
    EXPECT_EQ(p.d.type, plain_type(Dtype::bf16));
    const ScaleStrides x = scale_strides(p, p.a), w = scale_strides(p, p.b);
    for (int64_t expert = 0; expert < 3; ++expert) {
      for (int64_t row = 0; row < extent(p, expert, Axis::m); ++row)
        for (const int64_t column : {0, 127, 128, 299})
          EXPECT_EQ(scale_index(p, p.a, expert, row, column),
                    memory_row(p, p.a, expert, row) * x.row + column / 128 * x.column);
      for (const int64_t row : {0, 127, 128, 199})
        for (const int64_t column : {0, 128, 299})
          EXPECT_EQ(scale_index(p, p.b, expert, row, column),
                    expert * w.expert + (kind == ScaleKind::block ? row / 128 : row) * w.row + column / 128 * w.column);
    }
    const double of_w = 3 * 200 * 300, of_x = static_cast<double>(p.a.rows) * 300;  // at most
    EXPECT_GE(bytes(p), of_w);
    EXPECT_LT(bytes(p),
              of_w + of_x + 18 * 200 * 2 + 4.0 * static_cast<double>(scale_count(p, p.a) + scale_count(p, p.b) + 60));
  }
}

// The sum of products as Hopper's tensor cores make it of fp8: 32 at a time are aligned with the largest of them and of
// the sum before, and lose what lies 13 bits below its first. `restart`: terms after which fp32 takes over.
double tensor_core_sum(const std::vector<double>& products, size_t restart) {
  double total = 0, part = 0;
  for (size_t at = 0; at < products.size(); at += 32) {
    if (at % restart == 0) total += std::exchange(part, 0);
    double most = std::abs(part);
    for (size_t i = at; i < at + 32; ++i) most = std::max(most, std::abs(products[i]));
    const double unit = std::ldexp(1, std::ilogb(std::max(most, 1.0)) - 13);
    part = std::trunc(part / unit) * unit;
    for (size_t i = at; i < at + 32; ++i) part += std::trunc(products[i] / unit) * unit;
  }
  return total + part;
}

// What verify relies on: integers that promoted sums keep, and others lose over k = 7168.
TEST(Fp8, IntegersShowSumsThatAreNotPromoted) {
  Cell cell;
  cell.shape.layer = {.model = "custom",
                      .experts = 1,
                      .top_k = 1,
                      .n = 64,
                      .k = 7168,
                      .format = find_format("fp8", ScaleKind::channel)};
  cell.tokens = 32;
  cell.routing = parse_routing("uniform");
  Product p = product_of(make_problem(cell));
  EXPECT_EQ(max_integer(p, p.a), 16);
  const auto values_of = [&](const Operand& operand) {
    std::vector<double> values;
    for (int64_t i = 0; i < operand.rows * p.k; ++i)
      values.push_back(static_cast<double>(stored_value(p, operand, Values::integer, i)));
    return values;
  };
  const auto mismatches = [&](size_t restart) {
    const std::vector<double> x = values_of(p.a), w = values_of(p.b);
    const auto k = static_cast<size_t>(p.k);
    std::vector<double> products(k);
    int count = 0;
    for (size_t row = 0; row < x.size(); row += k)
      for (size_t column = 0; column < w.size(); column += k) {
        for (size_t i = 0; i < k; ++i) products[i] = x[row + i] * w[column + i];
        const double exact = std::accumulate(products.begin(), products.end(), 0.0);
        count += to_bf16(static_cast<float>(tensor_core_sum(products, restart))) != to_bf16(static_cast<float>(exact));
      }
    return count;
  };
  EXPECT_EQ(mismatches(128), 0);
  EXPECT_GT(mismatches(7168), 4);
  p.sums = Sums::fast;  // which must not be called wrong
  EXPECT_EQ(max_integer(p, p.a), 4);
  EXPECT_EQ(mismatches(7168), 0);
  p.sums = Sums::promoted, p.d.type = plain_type(Dtype::fp16);
  EXPECT_EQ(max_integer(p, p.b), 4);
  EXPECT_EQ(max_integer(product(), product().a), 4);
}

// W of 4 bits: rounded to X's dtype with its scale and zero point, each of which lies once.
TEST(Groups, ScaleWAndShiftItByZeroPoints) {
  for (const std::string dtype : {"int4", "uint4"}) {
    Cell cell;
    cell.shape.layer = {.model = "custom", .experts = 3, .top_k = 2, .n = 6, .k = 128};
    cell.shape.layer.format = find_format(dtype, ScaleKind::group32);
    cell.tokens = 9;
    cell.routing = parse_routing("uniform");
    const Product p = product_of(make_problem(cell));
    EXPECT_EQ(p.a.type, plain_type(Dtype::bf16));
    EXPECT_EQ(row_bytes(p.b), 64);
    EXPECT_EQ(scale_count(p, p.b), 3 * 6 * 4);
    std::set<int64_t> places;
    double most = 0;
    for (int64_t expert = 0; expert < 3; ++expert)
      for (int64_t row = 0; row < 6; ++row)
        for (int64_t column = 0; column < 128; ++column) {
          const int64_t zero = zero_index(p, p.b, expert, row, column);
          places.insert(zero);
          EXPECT_EQ(zero, ((expert * 3 + row / 2) * 4 + column / 32) * 2 + row % 2);
          const double exact = entering_value(p, p.b, Values::integer, expert, row, column);
          EXPECT_EQ(exact * 2, std::round(exact * 2));
          const double random = entering_value(p, p.b, Values::random, expert, row, column);
          EXPECT_EQ(random, static_cast<double>(round_to(Dtype::bf16, static_cast<float>(random))));
          most = std::max(most, std::abs(random));
        }
    EXPECT_EQ(places.size(), 72u);
    EXPECT_EQ(most > 12, dtype == "uint4") << most;  // 8 * 1.5 without zero points
    const double of_w = 3 * 6 * 64 + 72 * 2.0 + (dtype == "uint4" ? 36 : 0);
    EXPECT_EQ(bytes(p), of_w + 18 * 128 * 2 + 18 * 6 * 2 + 3 * 4);
  }
}

TEST(Flops, CountRealRowsOfEveryOp) {
  for (const Op op : kOps) EXPECT_EQ(flops(product(op)), 2.0 * 6 * 6 * 10) << name(op);
}
TEST(Bytes, AreTheFewest) {
  // W of 3 active experts, X, Y in bf16; m_sizes of 4 experts.
  EXPECT_EQ(bytes(product()), 2.0 * (3 * 60 + 6 * 10 + 6 * 6) + 4 * 4);
  // X of 3 tokens; 6 gather indices more.
  EXPECT_EQ(bytes(product(Op::fwd, {.permute_x = true})), 2.0 * (3 * 60 + 3 * 10 + 6 * 6) + 4 * (4 + 6));
  // 6 gather indices and 6 weights.
  EXPECT_EQ(bytes(product(Op::fwd, {.permute_y = true, .topk_weights = true})),
            2.0 * (3 * 60 + 6 * 10 + 6 * 6) + 4 * (4 + 6 + 6));
}
TEST(Bytes, OfGradients) {
  EXPECT_EQ(bytes(product(Op::dw)), 2.0 * (4 * 60 + 6 * 10 + 6 * 6) + 4 * 4);  // zeros for the empty expert
  EXPECT_EQ(bytes(product(Op::dx)), 2.0 * (3 * 60 + 6 * 10 + 6 * 6) + 4 * 4);
  // A row of dX for every slot, permuted or not.
  EXPECT_EQ(bytes(product(Op::dx, {.permute_x = true})), 2.0 * (3 * 60 + 6 * 10 + 6 * 6) + 4 * (4 + 6));
  EXPECT_EQ(bytes(product(Op::dw, {.permute_x = true})), 2.0 * (4 * 60 + 3 * 10 + 6 * 6) + 4 * (4 + 6));
}
TEST(Bytes, OfOperandsOfTheirOwnDtype) {
  Problem wide = small();
  wide.shape.layer.format = find_format("fp32");
  EXPECT_EQ(bytes(product_of(wide)), 4.0 * (3 * 60 + 6 * 10 + 6 * 6) + 4 * 4);
  Product p = product(Op::dw);
  p.d.type = plain_type(Dtype::fp32);
  EXPECT_EQ(bytes(p), 4.0 * 4 * 60 + 2.0 * (6 * 10 + 6 * 6) + 4 * 4);
}
TEST(Bytes, HoldNoPaddingButScales) {
  Product p = product();
  p.a.rows = 200, p.d.rows = 1000;
  EXPECT_EQ(bytes(p), bytes(product()));
  p.b.type.scales = block_scales(6, 10);  // one an expert
  EXPECT_EQ(bytes(p), bytes(product()) + 4.0 * 4);
}
TEST(Bytes, DoNotOverflow) {
  Problem problem = small();
  problem.shape.layer.n = 14336, problem.shape.layer.k = 7168;
  problem.routing.m_sizes = {1, 1, 1, 3};
  EXPECT_GT(bytes(product_of(problem)), 2.0 * 4 * 14336 * 7168);
}

TEST(Product, OfDwMayAccumulateAndBeFp32) {
  EXPECT_FALSE(product(Op::dw).accumulates);
  EXPECT_TRUE(product(Op::dw, {.accumulate = true}).accumulates);
  EXPECT_EQ(product(Op::dw).d.type, plain_type(Dtype::bf16));
  const Product p = product(Op::dw, {.fp32_dw = true});
  EXPECT_EQ(p.d.type.dtype, Dtype::fp32);
  EXPECT_EQ(p.a.type.dtype, Dtype::bf16);
  EXPECT_EQ(p.b.type.dtype, Dtype::bf16);
}
TEST(Product, ThatAccumulatesReadsAndWritesExpertsWithRows) {
  // Rows of dY and X, 3 of 4 experts' dW, and the rows of each expert.
  const double inputs = 2 * 6 * (6 + 10), counts = 4 * 4;
  EXPECT_EQ(bytes(product(Op::dw)), inputs + counts + 2 * 4 * 6 * 10);
  EXPECT_EQ(bytes(product(Op::dw, {.accumulate = true})), inputs + counts + 2 * 2 * 3 * 6 * 10);
  EXPECT_EQ(bytes(product(Op::dw, {.accumulate = true, .fp32_dw = true})), inputs + counts + 2 * 4 * 3 * 6 * 10);
  EXPECT_EQ(flops(product(Op::dw, {.accumulate = true})), flops(product(Op::dw)));
}
TEST(Product, OfDxMayHaveTheWeightsGradient) {
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  for (const Op op : kOps) EXPECT_FALSE(product(op, weighted).weight_gradient) << name(op);
  Fusion fusion = weighted;
  fusion.weight_gradient = true;
  const Product p = product(Op::dx, fusion);
  ASSERT_TRUE(p.weight_gradient);
  const auto& [x, dweights] = *p.weight_gradient;
  EXPECT_EQ(x.matrix, LayerMatrix::x);
  EXPECT_EQ(x.rows, 6);
  EXPECT_EQ(x.columns, 10);
  EXPECT_EQ(x.type.dtype, Dtype::bf16);
  EXPECT_EQ(row_map(p, x), kInPlace);
  EXPECT_EQ(name(dweights.matrix), "dweights");
  EXPECT_EQ(dweights.type.dtype, Dtype::fp32);
  EXPECT_EQ(dweights.rows, 6);
  EXPECT_EQ(dweights.columns, 1);
  EXPECT_EQ(row_map(p, dweights), slots_of(p));
  Product rest = p;
  rest.weight_gradient.reset();
  EXPECT_EQ(rest, product(Op::dx, weighted));
  EXPECT_EQ(flops(p), flops(rest) + 2.0 * 6 * 10);
  EXPECT_EQ(bytes(p), bytes(rest) + 2.0 * 6 * 10 + 4.0 * 6);  // X once, a weight's gradient for every slot
}
TEST(Product, OfGatesHasHalfAsManyColumns) {
  const Product plain = product(Op::fwd, {.permute_x = true});
  const Product p = product(Op::fwd, {.permute_x = true, .activation = Activation::silu, .bias = true});
  EXPECT_EQ(p.n, plain.n);
  EXPECT_EQ(p.d.columns, plain.d.columns / 2);
  EXPECT_EQ(gate_pair(p, 2).gate, 2);
  EXPECT_EQ(gate_pair(p, 2).up, 2 + p.n / 2);
  EXPECT_EQ(gate_pair(product(Op::fwd, {.activation = Activation::silu, .interleaved = true}), 2).up, 5);
  EXPECT_EQ(flops(p), flops(plain));
  EXPECT_EQ(bytes(plain) - bytes(p), static_cast<double>(6 * p.n - 2 * p.bias->rows * p.n));
  EXPECT_EQ(without_finish(p), plain);
}
TEST(Product, OfFp8ResultsHasScalesOfThem) {
  Problem problem = small(Op::fwd, {.permute_x = true, .activation = Activation::silu});
  problem.shape.layer.n = 2 * 160, problem.shape.layer.format = find_format("fp8");
  const Product plain = product_of(problem);
  problem.shape.layer.format = format_named("fp8-block-fp8");
  const Product p = product_of(problem);
  EXPECT_TRUE(quantises(p) && !quantises(plain));
  const Operand scales = scales_of_result(p);
  EXPECT_EQ(scales.rows, p.d.rows);
  EXPECT_EQ(scales.columns, 2);
  EXPECT_EQ(scales.type, plain_type(Dtype::fp32));
  EXPECT_EQ(bytes(plain) - bytes(p), 6.0 * (160 - 2 * 4));
  EXPECT_EQ(in_expert_order(p).d.type, plain_type(Dtype::bf16));
  const Shape up = problem.shape;
  Layer& layer = problem.shape.layer;
  layer.projection = Projection::down, layer.n = layer.k, layer.k = 160, layer.format = find_format("fp8");
  problem.shape.fusion = {.permute_y = true, .topk_weights = true};
  EXPECT_TRUE(feeds(up, problem.shape));
  const Product down = product_of(problem);  // reads both as they are
  EXPECT_EQ(down.a.type, p.d.type);
  EXPECT_EQ(down.a.rows, p.d.rows);
  EXPECT_EQ(scale_count(down, down.a), scales.rows * scales.columns);
}
TEST(Product, ThatSumsSlotsWritesEveryTokenOnce) {
  const Product by_slot = product(Op::dx, {.permute_x = true});
  const Product summed = product(Op::dx, {.permute_x = true, .sum_slots = true});
  EXPECT_EQ(bytes(by_slot) - bytes(summed), 2.0 * (6 - 3) * 10);
  EXPECT_EQ(flops(summed), flops(by_slot));
  Problem one_rank = small(Op::dx, {.permute_x = true, .sum_slots = true});
  one_rank.shape.layer.ep = 4;  // the expert of 3 rows
  one_rank.routing = first_experts(one_rank.routing, 1);
  EXPECT_EQ(bytes(product_of(one_rank)), 2.0 * (60 + 3 * 6 + 3 * 10) + 4 * (1 + 3));
  one_rank.routing.m_sizes = {0}, one_rank.routing.gather_indices.clear();
  EXPECT_EQ(bytes(product_of(one_rank)), 2.0 * 3 * 10 + 4);  // zeros
}
TEST(TileOccupancy, CountsPaddedTiles) {
  const auto of = [](Routing routing, int64_t block_m, Op op = Op::fwd) {
    const Layer layer{.model = "custom", .experts = 4, .top_k = 2, .n = 6, .k = 10};
    return tile_occupancy(product_of(Problem{{layer, op, {}}, std::move(routing), 0}), block_m);
  };
  const Routing routing = routing_from_rows({16, 17, 1, 0}, 17, 2);
  for (const Op op : {Op::fwd, Op::dx}) {
    EXPECT_DOUBLE_EQ(of(routing, 16, op), 34.0 / (4 * 16));
    EXPECT_DOUBLE_EQ(of(routing, 1, op), 1);
    EXPECT_DOUBLE_EQ(of(routing, 128, op), 34.0 / (3 * 128));
  }
  EXPECT_DOUBLE_EQ(of(first_experts(routing_from_rows({0, 3}, 3, 1), 1), 16), 1);
}
TEST(TileOccupancy, OfDwIsThatOfItsOwnRows) {
  EXPECT_DOUBLE_EQ(tile_occupancy(product(Op::dw), 4), 6.0 / 8);
  EXPECT_DOUBLE_EQ(tile_occupancy(product(Op::dw), 6), 1);
}

}  // namespace
}  // namespace moetune
