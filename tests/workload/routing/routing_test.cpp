// Realised routings: dealing of tokens, shards, figures, JSON.
#include "workload/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "check_routing.h"
#include "error_of.h"

namespace moetune {
namespace {

using Ints = std::vector<int32_t>;

TEST(RoutingFromIds, IsTheStableArgsortOfFlatIds) {
  Random random(1);
  const int64_t tokens = 200, top_k = 3, experts = 10;
  Ints ids;
  for (int64_t token = 0; token < tokens; ++token) {
    Ints order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 0; i < 3; ++i) std::swap(order[i], order[i + random.below(order.size() - i)]);
    ids.insert(ids.end(), order.begin(), order.begin() + top_k);
  }
  Ints expected(ids.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](int32_t a, int32_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  const Routing routing = routing_from_ids(ids, tokens, top_k, experts);
  EXPECT_EQ(routing.gather_indices, expected);
  check_routing(routing, tokens, experts, top_k);
}
TEST(RoutingFromIds, KeepsEmptyExperts) {
  EXPECT_EQ(routing_from_ids({3, 1}, 1, 2, 5).m_sizes, (Ints{0, 1, 0, 1, 0}));
  EXPECT_EQ(routing_from_ids({3, 1}, 1, 2, 5).gather_indices, (Ints{1, 0}));
}
TEST(RoutingFromIds, RefusesWrongIds) {
  EXPECT_EQ(error_of([] { routing_from_ids({0, 4}, 1, 2, 4); }).what, "token 0 has expert 4, outside 0 to 3");
  EXPECT_EQ(error_of([] { routing_from_ids({0, 1, -1, 2}, 2, 2, 4); }).what, "token 1 has expert -1, outside 0 to 3");
  EXPECT_EQ(error_of([] { routing_from_ids({0, 1, 2, 2}, 2, 2, 4); }).what, "token 1 has expert 2 twice");
  EXPECT_EQ(error_of([] {
              routing_from_ids({0, 1, 2}, 2, 2, 4);
            }).what,
            "3 chosen experts, but 2 tokens with top_k 2 make 4");
}

TEST(RoutingFromRows, DealsConsecutiveTokens) {
  // Tokens 0 1 2 in slot 0, then again in slot 1: expert 0 takes 0 1, expert 1 takes 2 and 0, expert 2 takes 1 2.
  const Routing routing = routing_from_rows({2, 2, 2}, 3, 2);
  EXPECT_EQ(routing.gather_indices, (Ints{0, 2, 1, 4, 3, 5}));
  check_routing(routing, 3, 3, 2);
}
TEST(RoutingFromRows, TakesFullAndEmptyExperts) {
  check_routing(routing_from_rows({0, 4, 0, 4, 0}, 4, 2), 4, 5, 2);
  check_routing(routing_from_rows({4, 4}, 4, 2), 4, 2, 2);
  check_routing(routing_from_rows({3, 4, 1}, 4, 2), 4, 3, 2);
}
TEST(RoutingFromRows, RefusesWrongRows) {
  EXPECT_EQ(error_of([] {
              routing_from_rows({2, 3, 2}, 3, 2);
            }).what,
            "rows sum to 7, but 3 tokens with top_k 2 make 6");
  EXPECT_EQ(error_of([] { routing_from_rows({4, 2}, 3, 2); }).what, "expert 0 has 4 rows, outside 0 to 3 tokens");
  EXPECT_EQ(error_of([] { routing_from_rows({3, -1, 4}, 3, 2); }).what, "expert 1 has -1 rows, outside 0 to 3 tokens");
  EXPECT_EQ(error_of([] { routing_from_rows({}, 3, 2); }).exit, Exit::request);
}

TEST(RequireSizes, RefusesWhatNoRoutingHas) {
  EXPECT_EQ(error_of([] { require_sizes(0, 8, 2); }).what, "tokens is 0, it must be at least 1");
  EXPECT_EQ(error_of([] { require_sizes(-3, 8, 2); }).what, "tokens is -3, it must be at least 1");
  EXPECT_EQ(error_of([] { require_sizes(1, 8, 9); }).what, "top_k 9 is more than the 8 experts");
  EXPECT_EQ(error_of([] { require_sizes(1, 100000, 1); }).what, "experts is 100000, outside 1 to 65536");
  EXPECT_EQ(error_of([] { require_sizes(int64_t{1} << 62, 8, 8); }).what,
            "4611686018427387904 tokens with top_k 8 are more than 268435456 rows");
  EXPECT_EQ(error_of([] { require_sizes(kMaxRows / 8, 8, 8); }).exit, Exit::yes);
}

TEST(Shared, ExpertsComeLastAndHaveEveryToken) {
  const RoutingSpec routed = parse_routing("zipf:1"), spec = parse_routing("shared:2:zipf:1");
  const Routing whole = generate_routing(spec, 40, 10, 4, 7), part = generate_routing(routed, 40, 8, 2, 7);
  check_routing(whole, 40, 10, 4);
  EXPECT_EQ(Ints(whole.m_sizes.begin(), whole.m_sizes.end() - 2), part.m_sizes);
  EXPECT_EQ(Ints(whole.m_sizes.end() - 2, whole.m_sizes.end()), (Ints{40, 40}));
  EXPECT_EQ(error_of([&] { generate_routing(spec, 40, 10, 2, 7); }).what, "top_k is 0, it must be at least 1");
}

TEST(FirstExperts, KeepTheirRows) {
  const Routing whole = routing_from_rows({2, 2, 1, 1}, 3, 2);
  const Routing part = first_experts(whole, 2);
  EXPECT_EQ(part.m_sizes, (Ints{2, 2}));
  EXPECT_EQ(part.gather_indices, Ints(whole.gather_indices.begin(), whole.gather_indices.begin() + 4));
  EXPECT_EQ(part.tokens, 3);
  EXPECT_EQ(first_experts(whole, 4), whole);
}
TEST(FirstExperts, MayHoldNoRows) {
  const Routing part = first_experts(routing_from_rows({0, 0, 3, 3}, 3, 2), 2);
  EXPECT_EQ(part.rows(), 0);
  EXPECT_EQ(part.m_sizes, (Ints{0, 0}));
}
TEST(Figures, CountByHand) {
  const RoutingFigures found = figures(routing_from_rows({4, 2, 2, 0}, 4, 2));
  EXPECT_EQ(found.rows, 8);
  EXPECT_EQ(found.active_experts, 3);
  EXPECT_EQ(found.max_rows, 4);
  EXPECT_DOUBLE_EQ(found.max_over_mean, 2);
  EXPECT_DOUBLE_EQ(found.cv, std::sqrt(2.0) / 2);  // variance (4 + 0 + 0 + 4) / 4
  EXPECT_DOUBLE_EQ(found.effective_experts, 64.0 / 24);
}
TEST(Figures, AreZeroForNoRows) {
  const RoutingFigures found = figures(first_experts(routing_from_rows({0, 3}, 3, 1), 1));
  EXPECT_EQ(found.rows, 0);
  EXPECT_EQ(found.max_over_mean, 0);
  EXPECT_EQ(found.effective_experts, 0);
}

TEST(RoutingJson, RoundTrips) {
  const Routing routing = routing_from_rows({5, 0, 3, 2}, 5, 2);
  const Json json = parse_json(to_json(routing).dump(), "x");
  EXPECT_EQ(routing_from_json(JsonAt(json, "x")), routing);
}

struct Broken {
  const char* name;
  const char* key;
  Json value;
  const char* what;
};
class RoutingJsonBroken : public testing::TestWithParam<Broken> {};
TEST_P(RoutingJsonBroken, IsRefused) {
  Json json = to_json(routing_from_rows({2, 2, 2}, 3, 2));  // gather 0 2, 1 4, 3 5
  json[GetParam().key] = GetParam().value;
  const Caught error = error_of([&] { routing_from_json(JsonAt(json, "p")); });
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what, GetParam().what);
}
INSTANTIATE_TEST_SUITE_P(
    Faults, RoutingJsonBroken,
    testing::Values(
        Broken{"Sum", "m_sizes", {2, 2, 1}, "p: m_sizes sum to 5, but gather_indices has 6 rows"},
        Broken{"Negative", "m_sizes", {3, -1, 4}, "p: m_sizes[1]: -1 is outside 0 to 3"},
        Broken{"OverTokens", "m_sizes", {4, 1, 1}, "p: m_sizes[0]: 4 is outside 0 to 3"},
        Broken{"SlotTooLarge", "gather_indices", {0, 2, 1, 4, 3, 6}, "p: gather_indices[5]: 6 is outside 0 to 5"},
        Broken{"SlotNegative", "gather_indices", {-1, 2, 1, 4, 3, 5}, "p: gather_indices[0]: -1 is outside 0 to 5"},
        Broken{"SlotTwice", "gather_indices", {0, 2, 1, 4, 1, 4}, "p: slot 1 has two experts"},
        Broken{
            "TokenTwice", "gather_indices", {0, 1, 2, 4, 3, 5}, "p: rows of expert 0 are not in the order of tokens"},
        Broken{"Unsorted", "gather_indices", {2, 0, 1, 4, 3, 5}, "p: rows of expert 0 are not in the order of tokens"},
        Broken{"ZeroTokens", "tokens", 0, "p: tokens: 0 is outside 1 to 134217728"},
        Broken{"HugeTokens", "tokens", 1e15, "p: tokens: 1000000000000000 is outside 1 to 134217728"},
        Broken{"Words", "gather_indices", "all", "p: gather_indices: expected an array, found a string"}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace moetune
