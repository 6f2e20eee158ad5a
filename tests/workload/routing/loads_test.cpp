// Whole shares of a total: caps, remainders, degenerate weights.
#include "workload/routing/loads.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/random.h"

namespace moetune {
namespace {

using Ints = std::vector<int32_t>;

TEST(Apportion, KeepsExactShares) { EXPECT_EQ(apportion({1, 2, 3}, 60, 100), (Ints{10, 20, 30})); }
TEST(Apportion, GivesRemaindersToTheLargestFractions) {
  EXPECT_EQ(apportion({1.4, 1.3, 1.3}, 4, 9), (Ints{2, 1, 1}));
  EXPECT_EQ(apportion({47, 16, 15.8, 12, 6.1, 3.1}, 10, 10), (Ints{5, 2, 1, 1, 1, 0}));
}
TEST(Apportion, GivesEqualRemaindersToTheFirst) { EXPECT_EQ(apportion({1, 1, 1}, 5, 9), (Ints{2, 2, 1})); }
TEST(Apportion, CapsAndSpreadsTheRest) {
  EXPECT_EQ(apportion({100, 1, 1}, 12, 6), (Ints{6, 3, 3}));
  EXPECT_EQ(apportion({100, 90, 1, 3}, 20, 7), (Ints{7, 7, 2, 4}));  // 6 left: 1.5 and 4.5, the first of equals up
}
TEST(Apportion, CapsAgainWhatGrewOverTheCap) { EXPECT_EQ(apportion({100, 10, 1}, 16, 7), (Ints{7, 7, 2})); }
TEST(Apportion, FillsAllToTheCapWhereTheTotalIsAll) { EXPECT_EQ(apportion({5, 0, 1}, 12, 4), (Ints{4, 4, 4})); }
TEST(Apportion, SharesEquallyWhereNoWeightIsLeft) {
  EXPECT_EQ(apportion({0, 0, 0}, 6, 6), (Ints{2, 2, 2}));
  EXPECT_EQ(apportion({1, 0, 0}, 8, 4), (Ints{4, 2, 2}));
}
TEST(Apportion, GivesNothing) { EXPECT_EQ(apportion({1, 2}, 0, 5), (Ints{0, 0})); }
TEST(Apportion, HoldsForAnyWeights) {
  Random random(9);
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> weights(1 + random.below(40));
    for (double& weight : weights) weight = random.below(4) == 0 ? 0 : portable_exp(60 * random.normal());
    const int64_t cap = 1 + static_cast<int64_t>(random.below(1000));
    const int64_t total = static_cast<int64_t>(random.below(static_cast<uint64_t>(cap) * weights.size() + 1));
    const Ints rows = apportion(weights, total, cap);
    ASSERT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), total);
    for (size_t e = 0; e < rows.size(); ++e) {
      ASSERT_GE(rows[e], 0);
      ASSERT_LE(rows[e], cap);
    }
  }
}
TEST(Apportion, KeepsTheOrderOfWeights) {
  Random random(10);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> weights(20);
    for (double& weight : weights) weight = random.exponential();
    const Ints rows = apportion(weights, 500, 60);
    for (size_t a = 0; a < 20; ++a)
      for (size_t b = 0; b < 20; ++b) ASSERT_TRUE(weights[a] <= weights[b] || rows[a] + 1 >= rows[b]);
  }
}

TEST(DrawLoads, GivesNothingForKindsThatChooseTokenByToken) {
  for (const char* kind : {"maxmean:4", "balanced"})
    EXPECT_EQ(draw_loads(parse_routing(kind), 8, 4, 2, 0).size(), 4u) << kind;
  for (const char* kind : {"zipf", "trace:x"}) EXPECT_TRUE(draw_loads(parse_routing(kind), 8, 4, 2, 0).empty()) << kind;
}

}  // namespace
}  // namespace moetune
