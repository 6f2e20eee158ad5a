// Order statistics against values from tables and by hand.
#include "base/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"

namespace moetune {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Median, TakesTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_TRUE(std::isnan(median({})));
}
TEST(Quantile, Interpolates) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 17.5);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}
TEST(HasSettled, ComparesTheLastTwoWindows) {
  const std::vector<double> falling = {1980, 1980, 1980, 1700, 1650, 1600, 1405, 1400, 1390, 1395, 1400, 1405};
  const auto after = [&](size_t readings) { return has_settled(std::span(falling).first(readings), 3, 0.01); };
  EXPECT_FALSE(after(5)) << "less than two windows";
  EXPECT_FALSE(after(6));
  EXPECT_FALSE(after(9)) << "1650, then 1400";
  EXPECT_TRUE(after(12)) << "1400, then 1400";
}

TEST(HasSettled, OneReadingThatDiffersIsNoChange) {
  EXPECT_TRUE(has_settled(std::vector<double>{1400, 1400, 1400, 900, 1400, 1400}, 3, 0.01));
  EXPECT_TRUE(has_settled(std::vector<double>(6, 0.0), 3, 0.01)) << "a clock that can't be read";
}

TEST(MedianEstimate, HasTheRanksOfTheTables) {
  // Conover, table of confidence limits for the median at 95 %: ranks 1-6, 2-9, 6-15, 40-61 (counted from 1).
  EXPECT_EQ(median_estimate(one_to(6)), (Estimate{3.5, 1, 6, 6}));
  EXPECT_EQ(median_estimate(one_to(10)), (Estimate{5.5, 2, 9, 10}));
  EXPECT_EQ(median_estimate(one_to(20)), (Estimate{10.5, 6, 15, 20}));
  EXPECT_EQ(median_estimate(one_to(100)), (Estimate{50.5, 40, 61, 100}));
}
TEST(MedianEstimate, IsTheRangeWhereSamplesAreFew) {
  EXPECT_EQ(median_estimate(one_to(5)), (Estimate{3, 1, 5, 5}));
  EXPECT_EQ(median_estimate(one_to(1)), (Estimate{1, 1, 1, 1}));
  EXPECT_TRUE(std::isnan(median_estimate({}).low));
}
TEST(MedianEstimate, NarrowsWithLessConfidence) {
  EXPECT_EQ(median_estimate(one_to(10), 0.8), (Estimate{5.5, 3, 8, 10}));
}
TEST(MedianEstimate, HoldsForThousandsOfSamples) {
  // 2^-n is no double any more: ranks by the normal limit, n/2 -+ 1.96 sqrt(n)/2.
  const Estimate found = median_estimate(one_to(4000));
  EXPECT_NEAR(found.low, 2000 - 1.96 * std::sqrt(4000.0) / 2, 2);
  EXPECT_NEAR(found.high, 2001 + 1.96 * std::sqrt(4000.0) / 2, 2);
}
TEST(MedianEstimate, CoversTheMedianAsOftenAsItSays) {
  Random random(1);
  int covered = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> samples(25);
    for (double& sample : samples) sample = random.exponential();
    const Estimate interval = median_estimate(samples);
    covered += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  EXPECT_GT(covered, 1880);
  EXPECT_LT(covered, 1980);
}
TEST(BootstrapMedian, IsTheSameEachTimeAndHoldsTheMedian) {
  const std::vector<double> values = one_to(31);
  const Estimate first = bootstrap_median(values);
  EXPECT_EQ(first, bootstrap_median(values));
  EXPECT_LT(first.low, 16);
  EXPECT_GT(first.high, 16);
  EXPECT_GT(first.low, 5);
  EXPECT_LT(first.high, 27);
}
TEST(BootstrapMedian, IsAPointForEqualSamples) {
  EXPECT_EQ(bootstrap_median(std::vector<double>(9, 2.5)), (Estimate{2.5, 2.5, 2.5, 9}));
  EXPECT_TRUE(std::isnan(bootstrap_median({}).low));
}
TEST(Estimate, IntervalsOfRatiosAndSumsFollowFromThoseOfTheirParts) {
  const Estimate slow{4, 2, 8, 9}, fast{2, 1, 4, 9};
  EXPECT_EQ(1 / slow, (Estimate{0.25, 0.125, 0.5, 9}));
  EXPECT_EQ(3 * slow, (Estimate{12, 6, 24, 9}));
  EXPECT_EQ(slow / fast, (Estimate{2, 0.5, 8}));
  Estimate sum = slow;
  EXPECT_EQ(sum += fast, (Estimate{6, 3, 12}));
  EXPECT_EQ(half_width(slow), 3);
  EXPECT_DOUBLE_EQ(log_half_width(slow), std::log(2.0));
}
TEST(GeometricMean, MultipliesAndTakesTheRoot) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{1, 8, 27}), 6);
  EXPECT_NEAR(geometric_mean(std::vector<double>{1e300, 1e300, 1e-300}) / 1e100, 1, 1e-12);
  EXPECT_TRUE(std::isnan(geometric_mean({})));
}

TEST(LogHalfWidth, IsTheRelativeUncertainty) {
  EXPECT_NEAR(log_half_width({1, 0.99, 1.01}), 0.01, 1e-6);
  EXPECT_EQ(log_half_width({2, 2, 2}), 0);
  EXPECT_TRUE(std::isinf(log_half_width({1, 0, 1})));
  EXPECT_TRUE(std::isinf(log_half_width({1, std::nan(""), 1})));
}

// 5 standard deviations are found where they begin, and nothing in noise alone: 300 series of 30.
TEST(ChangePoints, AreFoundInNoiseAndNotMadeOfIt) {
  Random random(7);
  int alarms = 0, found = 0;
  for (int series = 0; series < 300; ++series) {
    std::vector<double> quiet;
    for (int i = 0; i < 30; ++i) quiet.push_back(random.normal());
    std::vector<double> stepped = quiet;
    for (size_t i = 18; i < stepped.size(); ++i) stepped[i] += 5;
    alarms += change_points(quiet, noise_of(quiet, 0)).empty() ? 0 : 1;
    const std::vector<size_t> points = change_points(stepped, noise_of(stepped, 0));
    found += points.size() == 1 && points[0] >= 17 && points[0] <= 19 ? 1 : 0;
  }
  EXPECT_LE(alarms, 6);
  EXPECT_GE(found, 270);
}

TEST(ChangePoints, OfLevelsOutliersAndShortSeries) {
  const std::vector<double> levels = {1, 1, 1, 1, 2, 2, 2, 1, 1, 1};
  EXPECT_EQ(change_points(levels, 0.01), (std::vector<size_t>{4, 7}));
  EXPECT_TRUE(change_points(std::vector<double>{1, 1, 1, 9, 1, 1, 1}, 0.01).empty());
  EXPECT_TRUE(change_points(std::vector<double>{1, 1, 2, 2, 2}, 0.01).empty());  // no level of three before it
  EXPECT_TRUE(change_points({}, 0.01).empty());
  EXPECT_EQ(noise_of(std::vector<double>{3}, 0.25), 0.25);
  EXPECT_NEAR(noise_of(levels, 0.1), 0.1, 0);
}

}  // namespace
}  // namespace moetune
