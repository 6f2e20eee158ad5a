// Steps in a space that nobody lists: legal, near, and able to reach all of it.
#include "variant/space/domain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "variant/space/small_space.h"

namespace moetune {
namespace {

Shape qwen_shape(Op op = Op::fwd, Fusion fusion = {}) {
  Shape s;
  s.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = 1536, .k = 2048};
  s.op = op, s.fusion = fusion;
  return s;
}

DeviceInfo hopper() {
  DeviceInfo device = device_of_arch("sm_90a");
  device.processors = 132;
  return device;
}

Candidate fallback(const std::string& variant, const Shape& s) {
  return find_variant(variant).fallback(
      make_problem({.shape = s, .tokens = 1024, .routing = parse_routing("uniform"), .seed = 0}), hopper());
}

int changes(const Candidate& a, const Candidate& b) {
  int count = 0;
  for (size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

// All that steps lead to.
std::set<Candidate> reached(const Domain& domain, const Candidate& from) {
  std::set<Candidate> known = {from};
  std::vector<Candidate> open = {from};
  while (!open.empty()) {
    const Candidate at = open.back();
    open.pop_back();
    for (const Candidate& next : domain.neighbours(at))
      if (known.insert(next).second) open.push_back(next);
  }
  return known;
}

TEST(Domain, StepsReachEveryLegalCandidate) {
  for (const char* variant : {"mma", "wgmma"}) {
    const SearchSpace space = only("quick", variant);
    const Enumeration listed = enumerate(space, qwen_shape(), hopper());
    const Domain domain(space, qwen_shape(), hopper());
    const std::set<Candidate> found = reached(domain, listed.legal.front());
    EXPECT_EQ(found, std::set<Candidate>(listed.legal.begin(), listed.legal.end())) << variant;
    for (const Candidate& candidate : listed.legal) EXPECT_TRUE(domain.has(candidate)) << text(candidate);
  }
}

TEST(Domain, NeighboursAreLegalAndNear) {
  for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true}})
    for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
      const Shape s = qwen_shape(op, fusion);
      const Candidate from = fallback("wgmma", s);
      const Domain domain(whole_space(built_in()), s, hopper());
      const std::vector<Candidate> neighbours = domain.neighbours(from);
      EXPECT_GT(neighbours.size(), 12u);
      EXPECT_LT(neighbours.size(), 120u);
      std::set<Candidate> once;
      for (const Candidate& candidate : neighbours) {
        EXPECT_FALSE(cannot_run(candidate, s, hopper())) << text(candidate);
        EXPECT_TRUE(once.insert(candidate).second) << text(candidate);
        EXPECT_NE(candidate, from);
        // Two knobs, and those whose value follows as the largest that is legal.
        EXPECT_LE(changes(candidate, from), 4) << difference(candidate, from);
      }
    }
}

TEST(Domain, TheLargestLegalValueFollows) {
  const Candidate from = fallback("wgmma", qwen_shape());
  const Domain domain(whole_space(built_in()), qwen_shape(), hopper());
  const int stages = *find_value(from, "stages"), block_n = *find_value(from, "block_n");
  const auto neighbours = domain.neighbours(from);
  EXPECT_TRUE(std::ranges::any_of(neighbours, [&](const Candidate& candidate) {
    return *find_value(candidate, "block_n")<block_n&& * find_value(candidate, "stages")> stages;
  }));
}

TEST(Domain, MendsAStepByAnotherKnob) {
  // pingpong wants two consumers.
  const Domain domain(whole_space(built_in()), qwen_shape(), hopper());
  Candidate from = with_value(with_value(fallback("wgmma", qwen_shape()), "consumers", 1), "schedule", 0);
  from = with_value(with_value(from, "block_m", 64), "block_n", 128);
  ASSERT_TRUE(domain.nearest(from));
  EXPECT_TRUE(std::ranges::any_of(domain.neighbours(*domain.nearest(from)), [](const Candidate& candidate) {
    return find_value(candidate, "schedule") == 1 && find_value(candidate, "consumers") == 2;
  }));
}

TEST(Domain, TheNearestOfALegalCandidateIsItself) {
  const Domain domain(whole_space(built_in()), qwen_shape(), hopper());
  const Candidate from = fallback("wgmma", qwen_shape());
  EXPECT_EQ(domain.nearest(from), from);
  EXPECT_TRUE(domain.has(from));
}

TEST(Domain, TheNearestOfAnotherOpsWinnerIsLegal) {
  const Candidate from = fallback("wgmma", qwen_shape());
  const Shape dw = qwen_shape(Op::dw);
  const Domain domain(whole_space(built_in()), dw, hopper());
  const auto near = domain.nearest(from);
  ASSERT_TRUE(near);
  EXPECT_FALSE(cannot_run(*near, dw, hopper()));
}

TEST(Domain, KeepsToItsSpaceAndToTheCandidatesThatItIsGiven) {
  SearchSpace space = only("quick", "mma");
  set_values(space, "block_m=64,128", built_in());
  const Candidate from = fallback("mma", qwen_shape());
  std::set<Candidate> eight_warps;
  for (const Candidate& candidate : enumerate(space, qwen_shape(), hopper()).legal)
    if (find_value(candidate, "warps") == 8) eight_warps.insert(candidate);
  const Domain domain(space, qwen_shape(), hopper(), eight_warps);
  const auto near = domain.nearest(from);
  ASSERT_TRUE(near);
  EXPECT_FALSE(domain.all(std::ssize(eight_warps) - 1));
  EXPECT_EQ(domain.all(std::ssize(eight_warps)), std::vector<Candidate>(eight_warps.begin(), eight_warps.end()));
  for (const Candidate& candidate : reached(domain, *near)) {
    EXPECT_TRUE(find_value(candidate, "block_m") == 64 || find_value(candidate, "block_m") == 128);
    EXPECT_EQ(find_value(candidate, "warps"), 8);
  }
  EXPECT_FALSE(domain.has(with_value(*near, "block_m", 32)));
  EXPECT_FALSE(domain.has(with_value(*near, "warps", 4)));
  EXPECT_FALSE(domain.nearest(fallback("wgmma", qwen_shape())));
  EXPECT_TRUE(domain.neighbours(fallback("wgmma", qwen_shape())).empty());
}

TEST(Domain, KicksAreLegalAndDiffer) {
  const Domain domain(whole_space(built_in()), qwen_shape(), hopper());
  const Candidate from = fallback("wgmma", qwen_shape());
  Random random(3);
  std::set<Candidate> found;
  for (int i = 0; i < 50; ++i)
    if (const auto other = domain.kicked(from, 3, random)) {
      EXPECT_FALSE(cannot_run(*other, qwen_shape(), hopper())) << text(*other);
      found.insert(*other);
    }
  EXPECT_GT(found.size(), 25u);
}

TEST(Domain, ListsSmallSpacesAlone) {
  const SearchSpace quick = only("quick", "mma");
  const Domain domain(quick, qwen_shape(), hopper());
  EXPECT_FALSE(domain.all(20));
  const auto all = domain.all(1000);
  ASSERT_TRUE(all);
  std::vector<Candidate> listed = enumerate(quick, qwen_shape(), hopper()).legal, found = *all;
  std::ranges::sort(listed), std::ranges::sort(found);
  EXPECT_EQ(found, listed);
  EXPECT_EQ(domain.variants(), std::vector{built_in().find("mma")});
}

}  // namespace
}  // namespace moetune
