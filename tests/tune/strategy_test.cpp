// Strategies: order, completeness, seeds, and replay of a recorded exhaustive journal.
#include "tune/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "error_of.h"
#include "table/journal.h"
#include "temporary_folder.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

std::vector<Candidate> legal() {
  const fake::FakeBackend backend;
  return enumerate(fake::small_space(), fake::small_cell().shape, backend.device()).legal;
}

std::vector<Candidate> all_asked(Strategy& strategy) {
  std::vector<Candidate> asked;
  while (const auto candidate = strategy.ask()) asked.push_back(*candidate);
  return asked;
}

TEST(Strategy, ExhaustiveAsksAllInOrder) { EXPECT_EQ(all_asked(*make_strategy("exhaustive", legal(), 0)), legal()); }

TEST(Strategy, RandomAsksAllOnce) {
  std::vector<Candidate> asked = all_asked(*make_strategy("random", legal(), 7));
  EXPECT_NE(asked, legal());
  std::vector<Candidate> expected = legal();
  std::sort(asked.begin(), asked.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(asked, expected);
}

TEST(Strategy, RandomIsAFunctionOfItsSeed) {
  const auto asked = [](uint64_t seed) { return all_asked(*make_strategy("random", legal(), seed)); };
  EXPECT_EQ(asked(3), asked(3));
  EXPECT_NE(asked(3), asked(4));
}

TEST(Strategy, RandomPutsEveryCandidateFirstAboutAsOften) {
  std::map<Candidate, int> first;
  std::vector<Candidate> four = legal();
  four.resize(4);
  for (uint64_t seed = 0; seed < 400; ++seed) ++first[*make_strategy("random", four, seed)->ask()];
  ASSERT_EQ(first.size(), 4U);
  for (const auto& [candidate, times] : first) EXPECT_NEAR(times, 100, 40) << text(candidate);
}

TEST(Strategy, SkipsWhatItWasToldUnasked) {
  for (const std::string& name : strategy_names()) {
    const auto strategy = make_strategy(name, legal(), 1);
    strategy->tell(legal()[0], 1e-3);
    strategy->tell(legal()[5], std::nullopt);
    const std::vector<Candidate> asked = all_asked(*strategy);
    EXPECT_EQ(asked.size(), legal().size() - 2) << name;
    EXPECT_EQ(std::count(asked.begin(), asked.end(), legal()[0]), 0) << name;
    EXPECT_EQ(std::count(asked.begin(), asked.end(), legal()[5]), 0) << name;
  }
}

TEST(Strategy, AsksADuplicateOnce) {
  std::vector<Candidate> twice = legal();
  twice.push_back(legal()[0]);
  EXPECT_EQ(all_asked(*make_strategy("exhaustive", twice, 0)).size(), legal().size());
}

TEST(Strategy, IsDoneWithNothingToAsk) {
  const auto strategy = make_strategy("random", {}, 0);
  EXPECT_FALSE(strategy->ask());
  EXPECT_FALSE(strategy->ask());
}

TEST(Strategy, UnknownNameTellsTheNearest) {
  const Caught caught = error_of([] { make_strategy("randon", {}, 0); });
  EXPECT_EQ(caught.exit, Exit::request);
  EXPECT_EQ(caught.what, "unknown strategy 'randon'");
  EXPECT_EQ(caught.hint, "did you mean 'random'?");
}

// A recorded exhaustive run stands in for the device: what a strategy would have found after some trials.
double best_after(Strategy& strategy, const std::vector<Trial>& recorded, size_t trials) {
  double best = 1;
  for (size_t i = 0; i < trials; ++i) {
    const std::optional<Candidate> candidate = strategy.ask();
    if (!candidate) break;
    const auto trial =
        std::find_if(recorded.begin(), recorded.end(), [&](const Trial& t) { return t.candidate == *candidate; });
    EXPECT_NE(trial, recorded.end()) << text(*candidate);
    if (trial == recorded.end()) break;
    strategy.tell(*candidate, trial->measurement.seconds);
    best = std::min(best, trial->measurement.seconds);
  }
  return best;
}

std::vector<Trial> recorded_journal(const std::filesystem::path& path) {
  fake::FakeBackend backend;
  const JournalHeader header{.cells = {fake::small_cell()},
                             .device = backend.device(),
                             .environment = backend.environment(),
                             .space = "small",
                             .strategy = "exhaustive",
                             .seed = 0};
  Journal journal = Journal::create(path, header);
  for (const Candidate& candidate : legal()) {
    Trial trial;
    trial.candidate = candidate;
    trial.verdict = fake::right();
    trial.measurement = summarise(backend.sample(fake::contender(candidate), {.blocks = 3}));
    journal.finished(id(fake::small_cell()), trial);
  }
  return read_journal(path).trials.at(id(fake::small_cell()));
}

TEST(StrategyReplay, ExhaustiveFindsTheBestOfTheJournal) {
  const TemporaryFolder folder;
  const std::vector<Trial> recorded = recorded_journal(folder.path() / "journal.jsonl");
  EXPECT_NEAR(best_after(*make_strategy("exhaustive", legal(), 0), recorded, 48), 100e-6, 1e-9);
}

TEST(StrategyReplay, HalfOfARandomSearchFindsTheBestHalfOfTheTime) {
  const TemporaryFolder folder;
  const std::vector<Trial> recorded = recorded_journal(folder.path() / "journal.jsonl");
  int found = 0;
  for (uint64_t seed = 0; seed < 200; ++seed)
    found += best_after(*make_strategy("random", legal(), seed), recorded, 24) < 100.1e-6;
  EXPECT_NEAR(found, 100, 35);
}

}  // namespace
}  // namespace moetune
