// Generated routings: properties of every kind, the distributions that they claim, and pinned results.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "check_routing.h"
#include "error_of.h"
#include "workload/routing/routing.h"

namespace moetune {
namespace {

Routing generate(std::string_view spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed = 1) {
  return generate_routing(parse_routing(spec), tokens, experts, top_k, seed);
}

std::vector<int32_t> descending_rows(const Routing& routing) {
  std::vector<int32_t> rows = routing.m_sizes;
  std::sort(rows.rbegin(), rows.rend());
  return rows;
}

// ---- every kind

using Sizes = std::tuple<int64_t, int64_t, int64_t>;  // tokens, experts, top_k
class EveryKind : public testing::TestWithParam<std::tuple<const char*, Sizes>> {};

TEST_P(EveryKind, IsARoutingTheSameForASeed) {
  const auto& [spec, sizes] = GetParam();
  const auto [tokens, experts, top_k] = sizes;
  const Routing routing = generate(spec, tokens, experts, top_k, 7);
  check_routing(routing, tokens, experts, top_k);
  EXPECT_EQ(generate(spec, tokens, experts, top_k, 7), routing);
}

std::string test_name(const testing::TestParamInfo<EveryKind::ParamType>& tested) {
  const auto [tokens, experts, top_k] = std::get<1>(tested.param);
  std::string text = fmt::format("{}_t{}_e{}_top{}", std::get<0>(tested.param), tokens, experts, top_k);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind,
                         testing::Combine(testing::Values("balanced", "uniform", "zipf:1", "zipf:10", "powerlaw:1",
                                                          "powerlaw:3", "lognormal:1", "lognormal:10", "dirichlet:1",
                                                          "dirichlet:1000", "maxmean:1", "maxmean:100000", "hot:3:0.9",
                                                          "hot:3:0", "hot:1:1", "grouped:2:2", "grouped:1:1", "single"),
                                          testing::Values(Sizes{1, 8, 2},     // one token
                                                          Sizes{1, 4, 4},     // top_k = experts
                                                          Sizes{3, 128, 8},   // more experts than rows
                                                          Sizes{17, 16, 16},  // every expert full
                                                          Sizes{50, 6, 5},    // experts outside a pool do not suffice
                                                          Sizes{257, 64, 1},  //
                                                          Sizes{1000, 32, 4})),
                         test_name);

class OneExpert : public testing::TestWithParam<const char*> {};
TEST_P(OneExpert, TakesAll) { EXPECT_EQ(generate(GetParam(), 5, 1, 1).m_sizes, std::vector<int32_t>{5}); }
INSTANTIATE_TEST_SUITE_P(Kinds, OneExpert,
                         testing::Values("balanced", "uniform", "zipf", "powerlaw", "lognormal", "dirichlet", "maxmean",
                                         "grouped:1:1", "single"));

class RandomKinds : public testing::TestWithParam<const char*> {};
TEST_P(RandomKinds, DifferBetweenSeeds) {
  EXPECT_NE(generate(GetParam(), 500, 32, 4, 1).m_sizes, generate(GetParam(), 500, 32, 4, 2).m_sizes);
}
INSTANTIATE_TEST_SUITE_P(Kinds, RandomKinds,
                         testing::Values("uniform", "zipf", "powerlaw", "lognormal", "dirichlet", "maxmean", "hot",
                                         "grouped:8:4"));

// ---- distributions

TEST(Balanced, DiffersByOneRowAtMostInEveryRank) {
  for (const auto& [tokens, experts, top_k] : {Sizes{1, 128, 8}, Sizes{100, 7, 3}, Sizes{4096, 128, 8}}) {
    const std::vector<int32_t> rows = descending_rows(generate("balanced", tokens, experts, top_k));
    EXPECT_LE(rows.front() - rows.back(), 1);
  }
  EXPECT_EQ(first_experts(generate("balanced", 1, 128, 8), 16).rows(), 1);  // 8 rows over 8 ranks
}
TEST(Uniform, SpreadsEvenlyAndRandomly) {
  const RoutingFigures found = figures(generate("uniform", 8192, 64, 4));
  // Rows are binomial(tokens, top_k / experts): cv = sqrt((1 - p) / (tokens p)).
  EXPECT_NEAR(found.cv, std::sqrt((1 - 4.0 / 64) / (8192 * 4.0 / 64)), 0.015);
}
TEST(Zipf, HasTheSharesOfItsRanks) {
  const std::vector<int32_t> rows = descending_rows(generate("zipf:1", 50000, 128, 1));
  double harmonic = 0;
  for (int rank = 1; rank <= 128; ++rank) harmonic += 1.0 / rank;
  EXPECT_NEAR(rows[0] / 50000.0, 1 / harmonic, 0.006);
  EXPECT_NEAR(rows[1] / 50000.0, 1 / harmonic / 2, 0.005);
  EXPECT_NEAR(rows[9] / 50000.0, 1 / harmonic / 10, 0.003);
}
TEST(Zipf, PicksWithoutReplacementLikeGumbelTopK) {
  // Three experts of weights 1, 1/2, 1/3; two picks. P(not picked) of expert i is the chance that the others come
  // first.
  const double w[] = {1, 0.5, 1.0 / 3}, sum = w[0] + w[1] + w[2];
  const std::vector<int32_t> rows = descending_rows(generate("zipf:1", 100000, 3, 2));
  for (int i = 0; i < 3; ++i) {
    const double a = w[(i + 1) % 3], b = w[(i + 2) % 3];
    const double missed = a / sum * b / (sum - a) + b / sum * a / (sum - b);
    EXPECT_NEAR(rows[static_cast<size_t>(i)] / 100000.0, 1 - missed, 0.006) << i;
  }
}
TEST(Zipf, OfZeroIsUniform) { EXPECT_LT(figures(generate("zipf:0", 8192, 64, 4)).max_over_mean, 1.2); }
TEST(Zipf, HasItsFavouriteAnywhere) {
  std::set<int64_t> favourites;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<int32_t> rows = generate("zipf:2", 200, 64, 1, seed).m_sizes;
    favourites.insert(std::max_element(rows.begin(), rows.end()) - rows.begin());
  }
  EXPECT_GT(favourites.size(), 10u);
}
TEST(Powerlaw, IsContinuousAtOne) {
  EXPECT_EQ(generate("powerlaw:1", 4096, 64, 4), generate("powerlaw:1.00000001", 4096, 64, 4));
}
TEST(Powerlaw, HasTheLogUniformQuantilesAtOne) {
  // At a = 1 logarithms of loads are uniform on [0, log(0.8 tokens)]: so are those of rows, but for a shift.
  std::vector<int32_t> rows = descending_rows(generate("powerlaw:1", 100000, 1001, 8));
  const double low = std::log(rows[750]), middle = std::log(rows[500]), high = std::log(rows[250]);
  EXPECT_NEAR(high - middle, std::log(80000.0) / 4, 0.35);
  EXPECT_NEAR(middle - low, std::log(80000.0) / 4, 0.35);
}
TEST(Lognormal, HasTheDeviationOfItsLogarithms) {
  for (const double s : {0.5, 1.0}) {
    const Routing routing = generate(fmt::format("lognormal:{}", s), 1 << 18, 512, 8);
    double sum = 0, squares = 0;
    for (const int32_t m : routing.m_sizes) sum += std::log(m), squares += std::log(m) * std::log(m);
    EXPECT_NEAR(std::sqrt(squares / 512 - sum / 512 * sum / 512), s, 0.1 * s);
  }
}
TEST(Dirichlet, HasItsEffectiveExperts) {
  for (const double f : {1.1, 1.5, 2.0, 4.0, 10.0})
    EXPECT_NEAR(figures(generate(fmt::format("dirichlet:{}", f), 65536, 256, 2)).effective_experts, 256 / f,
                256 / f * 0.02)
        << f;
}
TEST(Dirichlet, MixesATenthOfUniformIn) {
  const Routing routing = generate("dirichlet:8", 100000, 64, 1);
  EXPECT_GE(descending_rows(routing).back(), 100000 / 64 / 10 - 1);
}
TEST(Maxmean, MeetsItsRatioToTheRow) {
  for (const double ratio : {1.0, 1.5, 2.0, 4.0, 8.0, 15.5}) {
    const RoutingFigures found = figures(generate(fmt::format("maxmean:{}", ratio), 4096, 128, 8));
    EXPECT_NEAR(found.max_over_mean, ratio, 1.0 / 256) << ratio;  // the mean is 256 rows
  }
}
TEST(Maxmean, GoesAsFarAsTheRowsAllow) {
  EXPECT_EQ(figures(generate("maxmean:1000", 4096, 128, 8)).max_rows, 4096);
  EXPECT_EQ(figures(generate("maxmean:1", 3, 128, 8)).max_rows, 1);
  EXPECT_EQ(figures(generate("maxmean:3", 1, 8, 1)).max_rows, 1);
}
TEST(Hot, GivesItsShareToItsPool) {
  for (const double share : {0.0, 0.25, 0.9, 1.0}) {
    const std::vector<int32_t> rows = descending_rows(generate(fmt::format("hot:8:{}", share), 1000, 128, 4));
    // At 0.25 the pool's experts still have the most rows: 125 each against 25.
    const int64_t pool = share == 0 ? 0 : std::accumulate(rows.begin(), rows.begin() + 8, int64_t{0});
    EXPECT_NEAR(static_cast<double>(pool), share * 4000, 1) << share;
  }
}
TEST(Hot, GivesASmallPoolWhatATokenMayPick) {
  const std::vector<int32_t> rows = descending_rows(generate("hot:2:0.9", 100, 16, 4));
  EXPECT_EQ(rows[0], 100);
  EXPECT_EQ(rows[1], 100);
  EXPECT_LT(rows[2], 40);
}
TEST(Hot, RefusesAPoolOfAllExperts) {
  EXPECT_EQ(error_of([] { generate("hot:8:0.5", 10, 8, 2); }).what,
            "routing hot: a pool of 8 is not smaller than the 8 experts");
}
TEST(Grouped, KeepsATokenWithinItsGroups) {
  const int64_t tokens = 500, experts = 64, top_k = 6, size = 8;
  const Routing routing = generate("grouped:8:3", tokens, experts, top_k);
  std::vector<std::set<int64_t>> groups(static_cast<size_t>(tokens));
  auto row = routing.gather_indices.begin();
  for (int64_t expert = 0; expert < experts; ++expert)
    for (int32_t i = 0; i < routing.m_sizes[static_cast<size_t>(expert)]; ++i)
      groups[static_cast<size_t>(*row++ / top_k)].insert(expert / size);
  size_t most = 0, sum = 0;
  for (const std::set<int64_t>& used : groups) most = std::max(most, used.size()), sum += used.size();
  EXPECT_EQ(most, 3u);
  EXPECT_GT(sum, static_cast<size_t>(2 * tokens));  // and it uses most of them
}
TEST(Grouped, RefusesGroupsThatDoNotFit) {
  EXPECT_EQ(error_of([] { generate("grouped:8:4", 10, 60, 2); }).what,
            "routing grouped: 8 groups do not divide 60 experts");
  EXPECT_EQ(error_of([] { generate("grouped:8:2", 10, 16, 6); }).what,
            "routing grouped: 2 of 8 groups of 2 experts cannot give top_k 6");
  EXPECT_EQ(error_of([] { generate("grouped:2:4", 10, 16, 2); }).what,
            "routing grouped: 4 of 2 groups of 8 experts cannot give top_k 2");
}
TEST(Single, FillsTheFirstTopKExperts) {
  EXPECT_EQ(generate("single", 9, 5, 2).m_sizes, (std::vector<int32_t>{9, 9, 0, 0, 0}));
}

// ---- errors, speed, pinned results

TEST(GenerateRouting, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(error_of([] { generate("uniform", 0, 8, 2); }).what, "tokens is 0, it must be at least 1");
  EXPECT_EQ(error_of([] { generate("uniform", 4, 8, 9); }).what, "top_k 9 is more than the 8 experts");
}
TEST(GenerateRouting, ChecksSpecsMadeByHand) {
  EXPECT_EQ(error_of([] {
              generate_routing({"zipf", {-4}, "", ""}, 4, 8, 2, 0);
            }).what,
            "routing 'zipf:-4': a is -4, outside 0 to 10");
  EXPECT_EQ(error_of([] { generate_routing({"zopf", {}, "", ""}, 4, 8, 2, 0); }).what, "unknown routing 'zopf'");
  EXPECT_EQ(generate_routing({"zipf", {}, "", ""}, 4, 8, 2, 0), generate("zipf:1", 4, 8, 2, 0));
}
TEST(GenerateRouting, IsFastForLargeModels) {
  const auto start = std::chrono::steady_clock::now();
  generate("zipf:1", 16384, 512, 8);
  // 0.15 s on an ordinary core; sanitizers and busy machines get their time.
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10);
}

// A change of any generator changes recorded cells: it must be meant, and be in the change log.
std::string fingerprint(const Routing& routing) {
  const auto bytes = [](const std::vector<int32_t>& values) {
    std::string text;
    for (const int32_t value : values) text += fmt::format("{},", value);
    return text;
  };
  return Hash().add(bytes(routing.m_sizes)).add(bytes(routing.gather_indices)).hex().substr(0, 16);
}
struct Golden {
  const char* spec;
  const char* expected;
};
class GoldenRouting : public testing::TestWithParam<Golden> {};
TEST_P(GoldenRouting, HasNotChanged) {
  EXPECT_EQ(fingerprint(generate(GetParam().spec, 300, 48, 4, 11)), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, GoldenRouting,
    testing::Values(Golden{"balanced", "1e9e47eed241fff4"}, Golden{"uniform", "b2545c14f14585e8"},
                    Golden{"zipf:1", "f28fe74243cd1346"}, Golden{"powerlaw:1.2", "5defa760bd1873a0"},
                    Golden{"lognormal:1", "a27378a541966053"}, Golden{"dirichlet:2", "cacdd8c82a9e85b7"},
                    Golden{"maxmean:4", "df2b3db9d38a41fb"}, Golden{"hot:4:0.9", "1280401384425975"},
                    Golden{"grouped:8:4", "fe0ba80ea63c3894"}, Golden{"single", "bb5f54a36b4c1fe7"}));

}  // namespace
}  // namespace moetune
