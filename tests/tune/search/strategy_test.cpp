// Strategies: order, completeness and seeds.
#include "tune/search/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "built_in.h"
#include "error_of.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

std::vector<Candidate> legal() {
  const fake::FakeBackend backend;
  return enumerate(fake::small_space(), fake::small_cell().shape, backend.device()).legal;
}

// Over a list, of which the first candidate is the default.
std::unique_ptr<Strategy> over(const std::string& name, std::vector<Candidate> list, uint64_t seed = 0) {
  const fake::FakeBackend backend;
  const Problem problem = make_problem(fake::small_cell());
  auto listed = std::make_shared<Enumeration>();
  listed->legal = std::move(list);
  return make_strategy(name,
                       {.problem = problem,
                        .device = backend.device(),
                        .fallback = listed->legal.front(),
                        .listed = listed,
                        .domain = std::make_shared<const Domain>(fake::small_space(), problem.shape, backend.device()),
                        .blocks = 3,
                        .seed = seed});
}

Trial trial_of(const Candidate& candidate, std::optional<double> seconds = 1e-3, int blocks = 1) {
  Trial trial;
  trial.candidate = candidate;
  trial.status = seconds ? Status::ok : Status::crashed;
  if (seconds) trial.blocks.assign(static_cast<size_t>(blocks), {.seconds = *seconds, .launches = 1});
  trial.measurement = summarise(trial.blocks);
  return trial;
}

// Each is answered as soon as it is asked for.
std::vector<Candidate> all_asked(Strategy& strategy) {
  std::vector<Candidate> asked;
  while (const auto next = strategy.ask()) {
    asked.push_back(next->candidate);
    strategy.tell(trial_of(next->candidate));
  }
  return asked;
}

TEST(Strategy, ExhaustiveAsksAllInOrder) {
  const auto strategy = over("exhaustive", legal());
  EXPECT_EQ(strategy->max_candidates(), std::ssize(legal()));
  EXPECT_EQ(strategy->ask()->blocks, 3);
  EXPECT_EQ(all_asked(*over("exhaustive", legal())), legal());
}

TEST(Strategy, RandomAsksAllOnceAndTheDefaultFirst) {
  std::vector<Candidate> asked = all_asked(*over("random", legal(), 7));
  EXPECT_NE(asked, legal());
  EXPECT_EQ(asked.front(), legal().front());
  std::vector<Candidate> expected = legal();
  std::sort(asked.begin(), asked.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(asked, expected);
}

TEST(Strategy, RandomIsAFunctionOfItsSeed) {
  const auto asked = [](uint64_t seed) { return all_asked(*over("random", legal(), seed)); };
  EXPECT_EQ(asked(3), asked(3));
  EXPECT_NE(asked(3), asked(4));
}

TEST(Strategy, RandomPutsEveryCandidateSecondAboutAsOften) {
  std::map<Candidate, int> second;
  std::vector<Candidate> five = legal();
  five.resize(5);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto strategy = over("random", five, seed);
    strategy->ask();
    ++second[strategy->ask()->candidate];
  }
  ASSERT_EQ(second.size(), 4U);
  for (const auto& [candidate, times] : second) EXPECT_NEAR(times, 100, 40) << text(candidate);
}

TEST(Strategy, SkipsTrialsOfAResumedRun) {
  for (const char* name : {"exhaustive", "random"}) {
    const auto strategy = over(name, legal(), 1);
    strategy->tell(trial_of(legal()[0]));
    strategy->tell(trial_of(legal()[5], std::nullopt));
    const std::vector<Candidate> asked = all_asked(*strategy);
    EXPECT_EQ(asked.size(), legal().size() - 2) << name;
    EXPECT_EQ(std::count(asked.begin(), asked.end(), legal()[0]), 0) << name;
    EXPECT_EQ(std::count(asked.begin(), asked.end(), legal()[5]), 0) << name;
  }
}

TEST(Strategy, AsksADuplicateOnce) {
  std::vector<Candidate> twice = legal();
  twice.push_back(legal()[0]);
  EXPECT_EQ(all_asked(*over("exhaustive", twice)).size(), legal().size());
}

TEST(Strategy, IsDoneAfterTheLast) {
  const auto strategy = over("random", {legal()[3]});
  EXPECT_TRUE(strategy->ask());
  EXPECT_FALSE(strategy->ask());
  EXPECT_FALSE(strategy->ask());
}

TEST(Strategy, KnowsWhatItIsLikelyToAskNext) {
  const auto strategy = over("exhaustive", legal());
  strategy->ask();
  strategy->tell(trial_of(legal()[2]));
  EXPECT_EQ(strategy->likely(2), (std::vector<Candidate>{legal()[1], legal()[3]}));
  EXPECT_EQ(strategy->likely(1000).size(), legal().size() - 2);
}

TEST(Strategy, UnknownNameSuggestsTheNearest) {
  const Caught caught = error_of([] { require_strategy("randon"); });
  EXPECT_EQ(caught.exit, Exit::request);
  EXPECT_EQ(caught.what, "unknown strategy 'randon'");
  EXPECT_EQ(caught.hint, "did you mean 'random'?");
}

}  // namespace
}  // namespace moetune
