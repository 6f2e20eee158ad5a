// The rules of `check`, on changes that are given, and the false discovery rate over cells.
#include "check/verdict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "check/false_discovery.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

const SmallestEffect kTwo = {.size = std::log1p(0.02)};

TEST(SmallestEffect, JudgesBothSides) {
  EXPECT_EQ(kTwo.judge(around(0.001, 0.01), false), Finding::equivalent);
  EXPECT_EQ(kTwo.judge(around(-0.03, 0.01), false), Finding::improved);
  EXPECT_EQ(kTwo.judge(around(-0.015, 0.018), false), Finding::equivalent);  // no wider than the effect
  EXPECT_EQ(kTwo.judge(around(-0.8, 0.81), false), Finding::inconclusive);   // slower by 1 % or half as slow
  EXPECT_EQ(kTwo.judge(around(0.001, 0.03), false), Finding::inconclusive);
  EXPECT_EQ(kTwo.judge(around(0.03, 0.01), false), Finding::inconclusive);  // a regression that is not confirmed
  EXPECT_EQ(kTwo.judge(around(0.03, 0.01), true), Finding::regressed);
}

TEST(SmallestEffect, AnIncreaseIsAboveItsSizeAndSurelyAboveZero) {
  EXPECT_TRUE(kTwo.is_increase(around(0.03, 0.01)));
  EXPECT_FALSE(kTwo.is_increase(around(0.019, 0.001)));
  EXPECT_FALSE(kTwo.is_increase(around(0.03, 0.018)));
  EXPECT_FALSE(kTwo.is_increase(around(0.10, 0.021)));  // wider than the effect: 6 halves
  EXPECT_TRUE(kTwo.is_increase(around(0.13, 0.021)));
  const SmallestEffect bold = {.size = kTwo.size, .sure = 1, .sure_when_noisy = 2};
  EXPECT_TRUE(bold.is_increase(around(0.03, 0.018)));
  EXPECT_TRUE(bold.is_increase(around(0.10, 0.021)));
}

TEST(SmallestEffect, ChancesAreOfTheIntervalWidenedWhereItIsTooNarrow) {
  EXPECT_NEAR(kTwo.chance_of_increase(around(0.01, 0.01)), 0.025, 1e-6);
  EXPECT_NEAR(kTwo.chance_of_decrease(around(-0.01, 0.01)), 0.025, 1e-6);
  EXPECT_EQ(kTwo.chance_of_increase(around(-0.01, 0.01)), 1);
  EXPECT_EQ(kTwo.chance_of_increase(around(0.01, 0)), 0);
  EXPECT_NEAR(kTwo.chance_of_increase(around(0.04 * 6 / 1.7, 0.04)), 0.025, 1e-6);
}

TEST(SmallestEffect, AnIncreaseIsADiscoveryAmong100CellsButNotAmong1000) {
  std::vector<double> chances(100, 0.5);
  chances[7] = kTwo.chance_of_increase(around(0.0201, 0.0201 / 1.71));
  EXPECT_TRUE(discoveries(chances, 0.05)[7]);
  chances.resize(1000, 0.5);
  EXPECT_FALSE(discoveries(chances, 0.05)[7]);
}

TEST(SmallestEffect, DetectsItsSizeAndHalfTheIntervalWhereThatIsNarrow) {
  EXPECT_NEAR(kTwo.detectable(around(0, 0)), 0.02, 1e-12);
  EXPECT_NEAR(std::log1p(kTwo.detectable(around(0.5, 0.01))), kTwo.size + 0.01, 1e-12);
  EXPECT_NEAR(std::log1p(kTwo.detectable(around(0, 0.018))), 2.7 * 0.018, 1e-12);
  EXPECT_NEAR(std::log1p(kTwo.detectable(around(0, 0.05))), 7 * 0.05, 1e-12);
}

CellFinding of(double change, double half, Finding what = Finding::equivalent) {
  CellFinding finding;
  finding.cell = fake::small_cell();
  finding.finding = what;
  finding.rounds = 15;
  finding.change = {std::expm1(change), std::expm1(change - half), std::expm1(change + half)};
  return finding;
}

TEST(Mean, IsGeometricAndItsIntervalShrinksWithTheCells) {
  const std::vector<CellFinding> findings = {of(0.10, 0.02), of(-0.06, 0.02), of(0.02, 0.02), of(0.02, 0.02)};
  const auto mean = mean_of(findings, kTwo);
  ASSERT_TRUE(mean.has_value());
  EXPECT_EQ(mean->cells, 4U);
  EXPECT_NEAR(std::log1p(mean->change.value), 0.02, 1e-12);
  EXPECT_NEAR(std::log1p(mean->change.high), 0.03, 1e-12);
}

TEST(Mean, LeavesOutWhatCannotBeJudged) {
  CellFinding unmeasured = of(0.9, 0.1, Finding::wrong_result);
  unmeasured.rounds = 0;
  const CellFinding endless = of(0.9, INFINITY, Finding::inconclusive), doubted = of(0.9, 0.1, Finding::untrusted);
  CellFinding moved = of(0.9, 0.3, Finding::inconclusive);
  moved.elsewhere = true;
  EXPECT_FALSE(mean_of(std::vector{of(0, 0.01), unmeasured, endless, doubted, moved}, kTwo).has_value());
  const auto mean = mean_of(std::vector{of(0, 0.01), unmeasured, endless, doubted, moved, of(0.01, 0.01)}, kTwo);
  ASSERT_TRUE(mean.has_value());
  EXPECT_EQ(mean->cells, 2U);
  EXPECT_EQ(mean->finding, Finding::equivalent);
}

TEST(Mean, RegressesByTheSameRuleAsACell) {
  EXPECT_EQ(mean_of(std::vector(4, of(0.03, 0.02)), kTwo)->finding, Finding::regressed);
  EXPECT_EQ(mean_of(std::vector(4, of(0.018, 0.01)), kTwo)->finding, Finding::equivalent);
  EXPECT_EQ(mean_of(std::vector(4, of(-0.03, 0.02)), kTwo)->finding, Finding::improved);
  EXPECT_EQ(mean_of(std::vector(4, of(0.03, 0.09)), kTwo)->finding, Finding::inconclusive);
}

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

TEST(Discoveries, WhatIsUnknownIsNeverOneAndCounts) {
  EXPECT_EQ(discoveries(std::vector<double>{0.02, NAN}, 0.05), (std::vector<bool>{true, false}));
  EXPECT_EQ(discoveries(std::vector<double>{0.03, NAN}, 0.05), (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace moetune
