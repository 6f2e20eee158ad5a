// The search by a surrogate: how near it comes to the best of large spaces, with how few candidates.
#include "tune/search/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "built_in.h"
#include "record/open_journal.h"
#include "temporary_folder.h"
#include "tune/tuning.h"

namespace moetune {
namespace {

DeviceInfo hopper() {
  DeviceInfo device = device_of_arch("sm_90a");
  device.processors = 132;
  return device;
}

Cell cell_of(int64_t tokens) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 128, .top_k = 8, .n = 1536, .k = 2048};
  cell.tokens = tokens;
  cell.routing = parse_routing("zipf:1");
  return cell;
}

// Tiles in rounds, each with the larger of its multiplications and its loads; and what other knobs cost beside. It has
// ridges and steps as kernels have.
double seconds_of(const Candidate& c, const Problem& problem) {
  const auto knob = [&](const char* name) { return static_cast<double>(find_value(c, name).value_or(0)); };
  const double m = knob("block_m"), n = knob("block_n"), k = 2048;
  double tiles = 0;
  for (const int rows : problem.routing.m_sizes) tiles += std::ceil(rows / m) * std::ceil(1536 / n);
  const double flops = 2 * m * n * k, bytes = 2 * (m + n) * k;
  double rate = 5e12;
  if (c.variant->name == "simt") rate = 4e11;
  if (c.variant->name == "mma") rate = 3e12 * (knob("warps") == 8 ? 1 : 0.9);
  if (c.variant->name == "wgmma" && knob("swap") == 0) rate *= 0.96;
  if (c.variant->name == "wgmma" && knob("consumers") * 64 > n) rate *= 0.8;
  const double stages = std::max(knob("stages"), 1.0), hidden = 1 - 0.5 / stages;
  double tile = std::max(flops / rate, bytes / 2e10 / hidden) + 1e-6 * (knob("schedule") == 1 ? 0.2 : 1);
  tile *= 1 + 0.02 * knob("in_flight") + 0.01 * std::abs(std::log2(std::max(knob("group"), 1.0)) - 2);
  if (knob("cluster") > 0) tile *= m > 128 ? 0.97 : 1.05;
  const double rounds = knob("tiles") == 1 ? tiles / 132 + 0.5 : std::ceil(tiles / 132);
  return 3e-6 + rounds * tile + (knob("hold") > 0 ? 1e-6 * (m > 80 ? 1 : -0.5) : 0);
}

struct Outcome {
  double seconds = 0;  // the true time of the candidate with the lowest median
  int64_t candidates = 0;
};

// The trial of a candidate with the blocks that were asked for added.
Trial& answer(std::map<Candidate, Trial>& trials, const Ask& next, double seconds, double sigma, Random& random) {
  Trial& trial = trials[next.candidate];
  trial.candidate = next.candidate;
  for (int i = 0; i < next.blocks; ++i)
    trial.blocks.push_back({.seconds = seconds * std::exp(sigma * random.normal()), .launches = 10});
  trial.measurement = summarise(trial.blocks);
  return trial;
}

// Answers with times of `seconds` and noise: each question before the next; or `late`, all that it asks before the
// last of them is answered.
Outcome search(const SearchSetting& setting, const std::function<double(const Candidate&)>& seconds, double sigma,
               uint64_t seed, Candidate* winner = nullptr, bool late = false) {
  const auto strategy = make_auto(setting);
  Random random(seed, 0x7e57);
  std::map<Candidate, Trial> trials;
  std::vector<Ask> asked;
  Outcome outcome;
  for (;;) {
    while (late || asked.empty()) {
      std::optional<Ask> more = strategy->ask();
      if (!more) break;
      EXPECT_EQ(std::ranges::find(asked, more->candidate, &Ask::candidate), asked.end()) << text(more->candidate);
      asked.push_back(std::move(*more));
    }
    if (asked.empty()) break;
    const Ask next = std::move(asked.back());
    asked.pop_back();
    EXPECT_TRUE(next.candidate == setting.fallback || setting.domain->has(next.candidate)) << text(next.candidate);
    strategy->tell(answer(trials, next, seconds(next.candidate), sigma, random));
  }
  const auto best = std::ranges::min_element(trials, {}, [](const auto& t) { return t.second.measurement.time.value; });
  outcome.seconds = seconds(best->first);
  if (winner) *winner = best->first;
  outcome.candidates = std::ssize(trials);
  EXPECT_LE(outcome.candidates, strategy->max_candidates());
  return outcome;
}

// The best of everything, by descents from many places without noise.
double best_of(const Domain& domain, const Candidate& from, const std::function<double(const Candidate&)>& seconds) {
  Random random(5);
  double best = seconds(from);
  for (int start = 0; start < 12; ++start) {
    Candidate at = start == 0 ? from : domain.kicked(from, 6, random).value_or(from);
    for (bool better = true; better;) {
      better = false;
      for (const Candidate& next : domain.neighbours(at))
        if (seconds(next) < seconds(at)) at = next, better = true;
    }
    best = std::min(best, seconds(at));
  }
  return best;
}

class AutoSearch : public testing::TestWithParam<int64_t> {
 protected:
  Problem problem = make_problem(cell_of(GetParam()));
  std::shared_ptr<const Domain> domain =
      std::make_shared<const Domain>(whole_space(built_in()), problem.shape, hopper());
  DeviceInfo device = hopper();
  Candidate fallback = default_candidate(whole_space(built_in()), problem, device);
  std::function<double(const Candidate&)> seconds = [this](const Candidate& c) { return seconds_of(c, problem); };

  SearchSetting setting(uint64_t seed, WarmStart warm = {}) const {
    return {.problem = problem,
            .device = device,
            .fallback = fallback,
            .listed = nullptr,
            .domain = domain,
            .warm = std::move(warm),
            .seed = seed};
  }
};
INSTANTIATE_TEST_SUITE_P(Tokens, AutoSearch, testing::Values(4, 64, 512, 4096));

TEST_P(AutoSearch, ComesNearTheBestOfMillionsWithAFewDozenCandidates) {
  const double best = best_of(*domain, fallback, seconds);
  double product = 1;
  constexpr int kRuns = 2;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const Outcome found = search(setting(seed), seconds, 0.003, seed, nullptr, seed % 2 == 1);
    EXPECT_LT(found.seconds / best, 1.1) << seed << " " << found.candidates;
    EXPECT_LE(found.candidates, 64);
    product *= found.seconds / best;
  }
  EXPECT_LT(std::pow(product, 1.0 / kRuns), 1.05);
}

TEST_P(AutoSearch, BeginsWithWhatWonNearbyAndTriesFewMore) {
  const double best = best_of(*domain, fallback, seconds);
  const Outcome cold = search(setting(1), seconds, 0.003, 1);
  const Problem other = make_problem(cell_of(GetParam() * 2));
  const auto there = [&](const Candidate& c) { return seconds_of(c, other); };
  const SearchSetting neighbour{
      .problem = other, .device = device, .fallback = fallback, .listed = nullptr, .domain = domain, .seed = 1};
  Candidate winner;
  search(neighbour, there, 0.003, 1, &winner);
  const Outcome warm = search(setting(1, {.candidates = {winner}, .near = true}), seconds, 0.003, 1);
  EXPECT_LE(warm.candidates, 32);
  EXPECT_LT(warm.candidates, cold.candidates);
  EXPECT_LT(warm.seconds / best, 1.1);
}

// Of candidates that launch the same work in the same order one is enough, after what it begins with.
TEST_P(AutoSearch, TriesNoTwoThatDoTheSameWork) {
  const auto strategy = make_auto(setting(3));
  const auto canonical = [&](const Candidate& c) {
    const Variant& variant = *c.variant;
    return variant.canonical ? variant.canonical(c, problem) : c;
  };
  const size_t first = strategy->likely(100).size();
  Random random(3, 0x7e57);
  std::map<Candidate, Trial> trials;
  std::set<Candidate> works;
  while (const std::optional<Ask> next = strategy->ask()) {
    const bool fresh = !trials.contains(next->candidate);
    const bool other = works.insert(canonical(next->candidate)).second;
    EXPECT_TRUE(!fresh || other || trials.size() < first) << text(next->candidate);
    strategy->tell(answer(trials, *next, seconds(next->candidate), 0.002, random));
  }
  EXPECT_GT(trials.size(), first);
}

TEST_P(AutoSearch, OftenAsksForWhatItCalledLikely) {
  const auto strategy = make_auto(setting(1));
  std::set<Candidate> asked, likely;
  int predicted = 0;
  while (const auto next = strategy->ask()) {
    if (asked.insert(next->candidate).second) predicted += likely.contains(next->candidate);
    Trial trial;
    trial.candidate = next->candidate;
    trial.blocks.assign(20, {.seconds = seconds(next->candidate), .launches = 10});  // nothing left to race
    trial.measurement = summarise(trial.blocks);
    strategy->tell(trial);
    EXPECT_LE(strategy->likely(3).size(), 3u);
    for (const Candidate& candidate : strategy->likely(16)) {
      EXPECT_FALSE(asked.contains(candidate));
      likely.insert(candidate);
    }
  }
  EXPECT_GT(3 * predicted, std::ssize(asked));
}

// As of a kernel made elsewhere: nothing predicts its times. Large tiles are the fastest, but spill with few threads.
TEST(Auto, FindsTheBestOfAVariantWithoutAModel) {
  SearchSpace space{.name = "cpu", .variants = {{.variant = built_in().find("cpu"), .values = {}}}};
  space.variants[0].values = {{"block_m", {8, 16, 24, 48, 96}},
                              {"block_n", {32, 64, 128, 192, 256}},
                              {"block_k", {64, 128, 192, 256, 384, 512}},
                              {"threads", {1, 2, 4, 8}}};
  const DeviceInfo device = {.kind = DeviceKind::cpu, .name = "fake", .id = "fake", .processors = 8};
  const Problem problem = make_problem(cell_of(64));
  const auto domain = std::make_shared<const Domain>(space, problem.shape, device);
  const std::vector<Candidate> all = domain->all(4096).value();
  ASSERT_GT(std::ssize(all), 500);
  const auto seconds = [](const Candidate& c) {
    const auto knob = [&](const char* name) { return static_cast<double>(find_value(c, name).value_or(0)); };
    const bool spills = knob("block_m") * knob("block_n") > 4000 * knob("threads");
    return 1e-4 * (spills ? 2 : 1) * (1 + 24 / knob("block_m") + 64 / knob("block_n")) *
           (1 + 0.05 * std::abs(std::log2(knob("threads")) - 2)) * (1 + 2e-4 * knob("block_k"));
  };
  const double best = seconds(*std::ranges::min_element(all, {}, seconds));
  const Candidate fallback = default_candidate(space, problem, device);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const SearchSetting setting{
        .problem = problem, .device = device, .fallback = fallback, .listed = nullptr, .domain = domain, .seed = seed};
    const Outcome found = search(setting, seconds, 0.003, seed);
    EXPECT_LT(found.seconds, 1.005 * best) << seed;
    EXPECT_LE(found.candidates, 150);
  }
}

TEST(Auto, TriesASmallSpaceWhole) {
  fake::Tuning tuning;
  tuning.request.strategy = "auto";
  const Entry entry = tuning.run_one();
  const Shape& shape = tuning.request.cells[0].shape;
  const int64_t all =
      std::ssize(enumerate(tuning.request.space, shape, tuning.backend.device()).legal) + 1;  // and the default
  EXPECT_EQ(entry.measured, all);
  EXPECT_EQ(tuning.planned, all);
  EXPECT_EQ(text(entry.candidate), "cpu block_m=48 block_n=64 block_k=128 threads=2");
}

TEST(Auto, GivesMoreBlocksToThoseThatMayWin) {
  fake::Tuning tuning({.noise = {.sigma = 0.03}});
  tuning.request.strategy = "auto";
  tuning.run();
  int most = 0, fewest = 100;
  std::map<Candidate, int> last;
  for (const Trial& trial : tuning.trials) last[trial.candidate] = trial.measurement.time.samples;
  for (const auto& [candidate, samples] : last) most = std::max(most, samples), fewest = std::min(fewest, samples);
  EXPECT_EQ(fewest, 2);
  EXPECT_GT(most, 5);
}

TEST(Auto, LeavesACandidateThatFails) {
  fake::Script script;
  script.before = [](const std::string& call, const Contender& contender) {
    if (call == "sample" && find_value(contender.candidate, "block_m") == 48)
      throw CandidateFault(Status::crashed, "planted");
  };
  fake::Tuning tuning(script);
  tuning.request.strategy = "auto";
  const Entry entry = tuning.run_one();
  EXPECT_GT(entry.failed, 0);
  EXPECT_NE(find_value(entry.candidate, "block_m"), 48);
}

TEST(Auto, AResumedRunAsksForNothingThatIsKnown) {
  const TemporaryFolder folder;
  fake::Tuning first;
  first.request.strategy = "auto";
  first.journal = create_journal(folder.path() / "journal.jsonl", first.header());
  first.run();
  fake::Tuning second;
  second.request.strategy = "auto";
  second.before = read_journal(folder.path() / "journal.jsonl", built_in());
  second.before.decided.clear();  // as where it ended before the final
  second.run();
  EXPECT_EQ(second.resumed, first.planned);
  EXPECT_TRUE(second.trials.empty()) << second.trials.size();
}

TEST(BlockNoise, IsRobustAgainstDisturbedBlocks) {
  std::vector<std::vector<double>> logs;
  Random random(2);
  for (int i = 0; i < 300; ++i) logs.push_back({0.01 * random.normal(), 0.01 * random.normal()});
  EXPECT_NEAR(block_noise(logs, 1), 0.01, 0.002);
  for (int i = 0; i < 30; ++i) logs[static_cast<size_t>(i)][0] = 5;
  EXPECT_NEAR(block_noise(logs, 1), 0.01, 0.003);
  EXPECT_EQ(block_noise({{0, 1}, {0, 2}}, 0.5), 0.5);  // too few
}

TEST(MayWin, ByTwoStandardDeviationsOfBoth) {
  EXPECT_TRUE(may_win({.median = 0.039, .blocks = 1}, {.median = 0, .blocks = 1}, 0.01));
  EXPECT_FALSE(may_win({.median = 0.041, .blocks = 1}, {.median = 0, .blocks = 1}, 0.01));
  EXPECT_FALSE(may_win({.median = 0.021, .blocks = 4}, {.median = 0, .blocks = 4}, 0.01));
}

}  // namespace
}  // namespace moetune
