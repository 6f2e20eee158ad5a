// Problems: sizes, JSON across a process border, operand values.
#include "workload/problem.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "error_of.h"

namespace moetune {
namespace {

// 4 experts of 6 x 10, top_k 2; 3 tokens: rows 3 0 2 1 of experts.
Problem small_problem() {
  const Layer layer{.model = "custom", .experts = 4, .top_k = 2, .n = 6, .k = 10};
  return {{layer, Op::fwd, {}}, routing_from_rows({3, 0, 2, 1}, 3, 2), 5};
}

Cell cell(std::string_view routing, int64_t tokens, int64_t ep = 1) {
  Cell result;
  result.shape.layer = {.model = "custom", .experts = 16, .top_k = 4, .n = 64, .k = 32, .ep = ep};
  result.tokens = tokens;
  result.routing = parse_routing(routing);
  result.seed = 3;
  return result;
}

TEST(Problem, CountsRowsAndExperts) {
  EXPECT_EQ(small_problem().rows(), 6);
  EXPECT_EQ(small_problem().active_experts(), 3);
}

TEST(MakeProblem, FollowsItsCell) {
  const Problem problem = make_problem(cell("zipf:1", 100));
  EXPECT_EQ(problem.rows(), 400);
  EXPECT_EQ(problem.seed, 3u);
  EXPECT_EQ(problem.routing, generate_routing(parse_routing("zipf:1"), 100, 16, 4, 3));
}
TEST(MakeProblem, KeepsTheRowsOfItsRank) {
  const Problem problem = make_problem(cell("uniform", 100, 4));
  EXPECT_EQ(problem.routing.m_sizes.size(), 4u);
  EXPECT_NEAR(static_cast<double>(problem.rows()), 100, 40);
}
TEST(MakeProblem, RefusesAWrongShapeAndZeroTokens) {
  Cell wrong = cell("uniform", 10);
  wrong.shape.layer.top_k = 17;
  EXPECT_EQ(error_of([&] { make_problem(wrong); }).what, "top_k 17 is more than the 16 experts");
  EXPECT_EQ(error_of([] { make_problem(cell("uniform", 0)); }).what, "tokens is 0, it must be at least 1");
}

Problem through_json(const Problem& problem) {
  const Json json = parse_json(to_json(problem).dump(), "p");
  return problem_from_json(JsonAt(json, "p"));
}

TEST(ProblemJson, RoundTripsExactly) {
  for (const char* routing : {"balanced", "uniform", "single", "zipf:2", "hot:2:0.5"})
    for (const int64_t ep : {1, 4}) {
      const Problem problem = make_problem(cell(routing, 37, ep));
      EXPECT_EQ(through_json(problem), problem) << routing << " " << ep;
    }
}
TEST(ProblemJson, KeepsARankWithoutRows) {
  Cell sharded = cell("single", 5, 4);
  Problem problem = make_problem(sharded);
  problem.routing.m_sizes = {0, 0, 0, 0};
  problem.routing.gather_indices.clear();
  EXPECT_EQ(through_json(problem), problem);
}
TEST(ProblemJson, KeepsAllBitsOfASeed) {
  Problem problem = small_problem();
  problem.seed = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(through_json(problem), problem);
}

// What is said of the small problem's JSON after a change.
template <typename Change>
std::string json_refusal(Change change) {
  Json json = to_json(small_problem());
  change(json);
  return error_of([&] { problem_from_json(JsonAt(json, "p")); }).what;
}
TEST(ProblemJson, RefusesContradictions) {
  EXPECT_EQ(json_refusal([](Json&) {}), "");
  EXPECT_EQ(json_refusal([](Json& p) { p["shape"]["experts"] = 5; }), "p: m_sizes has 4 experts, the layer 5");
  EXPECT_EQ(json_refusal([](Json& p) { p["shape"]["top_k"] = 1; }), "p: the routing has top_k 2, the layer 1");
  EXPECT_EQ(json_refusal([](Json& p) { p["routing"]["m_sizes"][0] = 2; }),
            "p: routing: m_sizes sum to 5, but gather_indices has 6 rows");
  EXPECT_EQ(json_refusal([](Json& p) { p["shape"]["n"] = -6; }), "p: shape: n is -6, it must be at least 1");
  EXPECT_EQ(json_refusal([](Json& p) { p["seed"] = -1; }), "p: seed: -1 is outside 0 to 9223372036854775807");
  EXPECT_EQ(json_refusal([](Json& p) { p.erase("routing"); }), "p: 'routing' is missing");
}

TEST(OperandValue, IsWholeAndFairInInteger) {
  std::vector<int> counts(9);
  for (uint64_t i = 0; i < 90000; ++i) {
    const float value = operand_value(Values::integer, 1, kStreamX, i);
    ASSERT_EQ(value, std::trunc(value));
    ASSERT_LE(std::abs(value), 4);
    ++counts[static_cast<size_t>(value + 4)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}
TEST(OperandValue, IsAboutNormalInRandom) {
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double value = operand_value(Values::random, 1, kStreamW, i);
    ASSERT_LE(std::abs(value), 4);
    sum += value, squares += value * value;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 100000), 1, 0.01);
}
// A multiplier that sees fewer bits needs less power: values must be as full as those of a normal distribution, whose
// mantissas of 7 bits end in one zero on average and hold 3.33 ones.
TEST(OperandValue, FillsTheMantissasOfBf16) {
  double zeros = 0, ones = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const float value = round_to(Dtype::bf16, operand_value(Values::random, 1, kStreamX, i));
    const uint32_t mantissa = std::bit_cast<uint32_t>(value) >> 16 & 0x7f;
    zeros += mantissa == 0 ? 7 : std::countr_zero(mantissa);
    ones += std::popcount(mantissa);
  }
  EXPECT_NEAR(zeros / 100000, 0.99, 0.03);
  EXPECT_NEAR(ones / 100000, 3.33, 0.03);
}
TEST(OperandValue, IsAFractionForWeights) {
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const float value = operand_value(Values::integer, 1, kStreamWeights, i);
    ASSERT_GT(value, 0);
    ASSERT_LE(value, 1);
    EXPECT_EQ(value, operand_value(Values::random, 1, kStreamWeights, i));
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}
TEST(OperandValue, FollowsItsFormula) {
  for (uint64_t index = 0; index < 100; ++index) {
    const uint64_t hash = splitmix64(splitmix64(7 * 4 + 1) + index / 2);
    const uint32_t bits = static_cast<uint32_t>(hash >> (index % 2 * 32));
    EXPECT_EQ(operand_value(Values::integer, 7, kStreamW, index), static_cast<float>((bits >> 8) % 9) - 4);
  }
}
TEST(OperandValue, DiffersBetweenSeedsStreamsAndNeighbours) {
  const auto differing = [](auto a, auto b) {
    int count = 0;
    for (uint64_t i = 0; i < 900; ++i) count += a(i) != b(i);
    return count;
  };
  const auto values = [](uint64_t seed, int stream, uint64_t shift) {
    return [=](uint64_t i) { return operand_value(Values::integer, seed, stream, i + shift); };
  };
  EXPECT_NEAR(differing(values(1, 0, 0), values(1, 1, 0)), 800, 50);
  EXPECT_NEAR(differing(values(1, 0, 0), values(2, 0, 0)), 800, 50);
  EXPECT_NEAR(differing(values(1, 0, 0), values(1, 0, 1)), 800, 50);
}
TEST(OperandValue, ReachesBeyond32Bits) {
  EXPECT_NE(operand_value(Values::random, 1, kStreamW, 1),
            operand_value(Values::random, 1, kStreamW, (1ull << 32) + 1));
}

}  // namespace
}  // namespace moetune
