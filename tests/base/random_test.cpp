// Portable elementary functions against the C library, and pinned random numbers.
#include "base/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace moetune {
namespace {

// Doubles between a and b, for positive ones.
int64_t ulps(double a, double b) { return std::abs(std::bit_cast<int64_t>(a) - std::bit_cast<int64_t>(b)); }

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(PortableLog, IsWithinTwoUlpsOverAllMagnitudes) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(1 + random.uniform(), static_cast<int>(random.below(2100)) - 1074);
    if (!std::isfinite(x) || x == 0) continue;
    ASSERT_LE(ulps(std::abs(portable_log(x)), std::abs(std::log(x))), 2) << x;
  }
}
TEST(PortableLog, IsWithinTwoUlpsNearOne) {
  for (int i = -2000; i <= 2000; ++i) {
    const double x = 1 + i * 1e-6;
    ASSERT_LE(ulps(std::abs(portable_log(x)), std::abs(std::log(x))), 2) << x;
  }
}
TEST(PortableLog, HasTheEdgesOfLog) {
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_log(0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(-1)));
  EXPECT_TRUE(std::isnan(portable_log(std::nan(""))));
}
TEST(PortableExp, IsWithinTwoUlps) {
  Random random(2);
  for (int i = 0; i < 100000; ++i) {
    const double x = -700 + 1409 * random.uniform();
    ASSERT_LE(ulps(portable_exp(x), std::exp(x)), 2) << x;
  }
}
TEST(PortableExp, HasTheEdgesOfExp) {
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(-0.0), 1);
  EXPECT_EQ(portable_exp(-1000), 0);
  EXPECT_EQ(portable_exp(-kInfinity), 0);
  EXPECT_EQ(portable_exp(710), kInfinity);
  EXPECT_TRUE(std::isnan(portable_exp(std::nan(""))));
  EXPECT_LE(ulps(portable_exp(709.78), std::exp(709.78)), 2);
  EXPECT_LE(ulps(portable_exp(-740), std::exp(-740)), 2);  // a subnormal result
}
TEST(PortablePow, IsNearPow) {
  for (const double base : {0.5, 1.0, 2.0, 3.0, 512.0})
    for (const double exponent : {-2.5, -1.0, 0.0, 0.5, 1.0, 3.0})
      EXPECT_NEAR(portable_pow(base, exponent) / std::pow(base, exponent), 1, 2e-14) << base << " " << exponent;
}
TEST(PortableMath, GivesPinnedBits) {
  EXPECT_EQ(std::bit_cast<uint64_t>(portable_log(10)), 0x40026bb1bbb55516u);
  EXPECT_EQ(std::bit_cast<uint64_t>(portable_exp(1)), 0x4005bf0a8b14576au);
}

TEST(Splitmix64, HasItsPublishedValues) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(0x9e3779b97f4a7c15), 0x6e789e6aa1b965f4u);
}
TEST(Random, GivesPinnedNumbers) {
  Random random(42);
  const std::vector<uint64_t> found = {random.next(), random.next(), random.next()};
  EXPECT_EQ(found, (std::vector<uint64_t>{0xdd9e845df6849b2cu, 0x4b370c11bd0ce066u, 0x4de0b63c6174649eu}));
}
TEST(Random, SeedsAndStreamsDiffer) {
  EXPECT_EQ(Random(1, 2).next(), Random(1, 2).next());
  EXPECT_NE(Random(1, 2).next(), Random(2, 1).next());
  EXPECT_NE(Random(1, 0).next(), Random(1, 1).next());
  EXPECT_NE(Random(0, 0).next(), Random(0, 1).next());
}
TEST(Random, UniformStaysInside) {
  Random random(3);
  double low = 1, high = 0, sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = random.uniform();
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    low = std::min(low, u), high = std::max(high, u), sum += u;
  }
  EXPECT_LT(low, 1e-3);
  EXPECT_GT(high, 1 - 1e-3);
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}
TEST(Random, BelowIsFairForBoundsThatAreNoPowersOfTwo) {
  Random random(4);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.below(1), 0u);
}
TEST(Random, BelowReachesTheTopOfAHugeBound) {
  Random random(5);
  const uint64_t bound = (uint64_t{3} << 62) + 1;
  int top = 0;
  for (int i = 0; i < 3000; ++i) {
    const uint64_t value = random.below(bound);
    ASSERT_LT(value, bound);
    top += value >= bound / 3 * 2;
  }
  EXPECT_NEAR(top, 1000, 120);
}
TEST(Random, NormalHasUnitVariance) {
  Random random(6);
  double sum = 0, squares = 0;
  int far = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.normal();
    sum += x, squares += x * x, far += std::abs(x) > 1.959964;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.015);
  EXPECT_NEAR(squares / 100000, 1, 0.02);
  EXPECT_NEAR(far / 100000.0, 0.05, 0.004);
}
TEST(Random, ExponentialHasItsMean) {
  Random random(7);
  double exponentials = 0;
  for (int i = 0; i < 100000; ++i) exponentials += random.exponential();
  EXPECT_NEAR(exponentials / 100000, 1, 0.02);
}

}  // namespace
}  // namespace moetune
