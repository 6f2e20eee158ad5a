// Regression over knobs, and expected improvements.
#include "tune/search/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "built_in.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

TEST(KnobCoordinates, AreStepsOfNumbersAndWords) {
  const Variant& variant = find_variant("wgmma");
  const Candidate from = variant.fallback(make_problem(fake::small_cell()), device_of_arch("sm_90a"));
  VariantSpace searched{from.variant, {}};
  for (const Knob& knob : variant.knobs) searched.values.emplace_back(knob.name, knob.values);
  const auto distance = [&](const char* knob, int a, int b) {
    const auto p = knob_coordinates(searched, with_value(from, knob, a));
    const auto q = knob_coordinates(searched, with_value(from, knob, b));
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i)
      for (size_t j = 0; j < p[i].size(); ++j) sum += std::abs(p[i][j] - q[i][j]);
    return sum;
  };
  EXPECT_DOUBLE_EQ(distance("swap", 0, 1), 1);
  EXPECT_DOUBLE_EQ(distance("tma_store", 0, 2), 1);
  EXPECT_DOUBLE_EQ(distance("block_m", 16, 256), 4);  // from end to end of a long list
  EXPECT_DOUBLE_EQ(distance("block_k", 64, 128), 1);
  EXPECT_DOUBLE_EQ(distance("stages", 3, 4), distance("stages", 2, 3));
  EXPECT_DOUBLE_EQ(distance("hold", 0, 64), distance("hold", 64, 128));
  searched.values[0].second = {64, 128};  // of a smaller space
  EXPECT_DOUBLE_EQ(distance("block_m", 64, 128), 1);
}

Coordinates at(double x, double y = 0) { return {{x}, {y}}; }

TEST(Surrogate, PassesNearWhatItSaw) {
  const Surrogate surrogate({at(0), at(1), at(2), at(3)}, {3, 1, 2, 5}, 0.1);
  EXPECT_NEAR(surrogate.at(at(1)).mean, 1, 0.5);
  EXPECT_NEAR(surrogate.at(at(3)).mean, 5, 0.5);
  EXPECT_LT(surrogate.at(at(1)).sd, surrogate.at(at(1.5)).sd);
  EXPECT_LT(surrogate.at(at(1.5)).sd, surrogate.at(at(9)).sd);
}

TEST(Surrogate, FarAwayItKnowsTheMean) {
  const Surrogate surrogate({at(0), at(1)}, {2, 4}, 0.1);
  EXPECT_NEAR(surrogate.at(at(1e5)).mean, 3, 1e-6);
  EXPECT_NEAR(surrogate.at(at(1e5)).sd, 1, 1e-6);
}

TEST(Surrogate, OfOnePointHasTheGivenDeviation) {
  const Surrogate surrogate({at(0, 0)}, {7}, 0.2);
  EXPECT_DOUBLE_EQ(surrogate.at(at(50, 50)).mean, 7);
  EXPECT_NEAR(surrogate.at(at(1e5, 1e5)).sd, 0.2, 1e-9);
}

TEST(Surrogate, LearnsWhichKnobMatters) {
  std::vector<Coordinates> points;
  std::vector<double> values;
  for (int x = 0; x < 5; ++x)
    for (int y = 0; y < 5; ++y) points.push_back(at(x, y)), values.push_back(x * x);
  std::vector<double> relevances;
  for (int fit = 0; fit < 4; ++fit) relevances = Surrogate(points, values, 0.1, relevances).relevances();
  EXPECT_GT(relevances[0], 5 * relevances[1]);
}

TEST(ExpectedImprovement, IsThatOfANormalDistribution) {
  EXPECT_DOUBLE_EQ(expected_improvement({.mean = 2, .sd = 0}, 3), 1);
  EXPECT_DOUBLE_EQ(expected_improvement({.mean = 4, .sd = 0}, 3), 0);
  EXPECT_NEAR(expected_improvement({.mean = 3, .sd = 1}, 3), 1 / std::sqrt(2 * 3.14159265), 1e-6);
  EXPECT_GT(expected_improvement({.mean = 3.5, .sd = 1}, 3), expected_improvement({.mean = 3.5, .sd = 0.1}, 3));
}

}  // namespace
}  // namespace moetune
