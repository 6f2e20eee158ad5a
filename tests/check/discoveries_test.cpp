// The false discovery rate over cells.
#include "check/discoveries.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace moetune {
namespace {

TEST(NormalTail, IsThatOfTables) {
  EXPECT_DOUBLE_EQ(normal_tail(0), 0.5);
  EXPECT_NEAR(normal_tail(1.959964), 0.025, 1e-7);
  EXPECT_NEAR(normal_tail(-1.644854), 0.95, 1e-6);
  EXPECT_EQ(normal_tail(INFINITY), 0);
}

TEST(Discoveries, AreThoseOfTheArticle) {
  // Benjamini and Hochberg 1995, 3.2: fifteen p-values, of which the first four are rejected at 5 %.
  const std::vector<double> p = {0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                                 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000};
  const std::vector<bool> rejected = discoveries(p, 0.05);
  for (size_t i = 0; i < p.size(); ++i) EXPECT_EQ(rejected[i], i < 4) << i;
}

TEST(Discoveries, ALaterOneCarriesAnEarlierOneThatFailsItsOwnLimit) {
  EXPECT_EQ(discoveries(std::vector<double>{0.04, 0.03, 0.9}, 0.05), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(discoveries(std::vector<double>{0.04, 0.03}, 0.05), (std::vector<bool>{true, true}));
}

TEST(Discoveries, OneHypothesisIsJudgedByItself) {
  EXPECT_EQ(discoveries(std::vector<double>{0.05}, 0.05), std::vector<bool>{true});
  EXPECT_EQ(discoveries(std::vector<double>{0.051}, 0.05), std::vector<bool>{false});
  EXPECT_TRUE(discoveries({}, 0.05).empty());
}

TEST(Discoveries, WhatIsUnknownIsNeverOneAndCounts) {
  EXPECT_EQ(discoveries(std::vector<double>{0.02, NAN}, 0.05), (std::vector<bool>{true, false}));
  EXPECT_EQ(discoveries(std::vector<double>{0.03, NAN}, 0.05), (std::vector<bool>{false, false}));
}

TEST(Discoveries, ByChanceAreRare) {
  Random random(7);
  int runs_with_one = 0;
  for (int run = 0; run < 1000; ++run) {
    std::vector<double> p(40);
    for (double& one : p) one = normal_tail(random.normal());
    const std::vector<bool> rejected = discoveries(p, 0.05);
    runs_with_one += std::find(rejected.begin(), rejected.end(), true) != rejected.end();
  }
  EXPECT_GT(runs_with_one, 25);  // 5 % of 1000 are expected, with a standard deviation of 7
  EXPECT_LT(runs_with_one, 80);
}

}  // namespace
}  // namespace moetune
