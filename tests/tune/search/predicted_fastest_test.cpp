// The model's best candidates: in order, apart from each other, and plain where the model sees no difference.
#include "tune/search/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "built_in.h"
#include "h200.h"
#include "variant/space/space.h"

namespace moetune {
namespace {

Problem problem(int64_t tokens) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 128, .top_k = 8, .n = 1536, .k = 2048};
  return make_problem({.shape = shape, .tokens = tokens, .routing = parse_routing("zipf:1.0"), .seed = 0});
}

double seconds(const Candidate& candidate, const Problem& problem) {
  return candidate.variant->seconds(candidate, problem, h200());
}

size_t changes(const Candidate& a, const Candidate& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

class Promising : public testing::TestWithParam<std::pair<const char*, int64_t>> {
 protected:
  const Problem problem_ = problem(GetParam().second);
  const Domain domain_{space(), problem_.shape, h200()};
  const Candidate fallback_ = default_candidate(space(), problem_, h200());

  static SearchSpace space() {
    return std::string(GetParam().first) == "all" ? whole_space(built_in()) : load_space(GetParam().first, built_in());
  }
  std::vector<Candidate> first(size_t count) const {
    return predicted_fastest(domain_, problem_, h200(), {fallback_}, count);
  }
};

TEST_P(Promising, AreLegalAndTheFastestFirst) {
  const std::vector<Candidate> found = first(12);
  ASSERT_EQ(found.size(), 12);
  EXPECT_TRUE(std::ranges::all_of(found, [&](const Candidate& one) { return domain_.has(one); }));
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, [&](const Candidate& one) { return seconds(one, problem_); }));
  EXPECT_LE(seconds(found.front(), problem_), seconds(domain_.nearest(fallback_).value(), problem_));
}

TEST_P(Promising, DifferInTwoKnobsOrMore) {
  const std::vector<Candidate> found = first(12);
  for (size_t i = 0; i < found.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_GE(changes(found[i], found[j]), 2);
}

TEST_P(Promising, HaveTheDefaultsValuesWhereTheModelSeesNoDifference) {
  for (const Candidate& one : first(12))
    for (size_t i = 0; i < one.values.size(); ++i) {
      Candidate plain = one;
      plain.values[i] = fallback_.values[i];
      if (plain == one || !domain_.has(plain)) continue;
      EXPECT_NE(seconds(plain, problem_), seconds(one, problem_)) << one.variant->knobs[i].name;
    }
}

TEST_P(Promising, AreTheSameAgain) { EXPECT_EQ(first(8), first(8)); }

INSTANTIATE_TEST_SUITE_P(Spaces, Promising,
                         testing::Values(std::pair{"all", 64}, std::pair{"all", 4096}, std::pair{"decode", 16}),
                         [](const auto& one) { return one.param.first + std::to_string(one.param.second); });

TEST(PromisingOfVariantsWithoutAModel, AreNone) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"simt"}, built_in());
  const Problem p = problem(64);
  const Domain domain(space, p.shape, h200());
  EXPECT_TRUE(predicted_fastest(domain, p, h200(), {default_candidate(space, p, h200())}, 8).empty());
}

}  // namespace
}  // namespace moetune
