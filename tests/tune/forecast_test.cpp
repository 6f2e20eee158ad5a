// What a journal's times tell of a run to come.
#include "tune/forecast.h"

#include <gtest/gtest.h>

#include "sleep_ms.h"
#include "tune/fake_backend.h"
#include "tune/tuning.h"
#include "workload/product.h"

namespace moetune {
namespace {

using fake::cpu;

constexpr int64_t kTokens = 16, kOthers = 16384;

// Trials of three candidates and a final of the cell of kTokens.
JournalContents journal() {
  JournalContents contents;
  contents.header.cells = {fake::small_cell(kTokens), fake::small_cell(64)};
  contents.header.device.processors = 2;
  const auto add = [&](const Candidate& candidate, double took) {
    Trial trial;
    trial.candidate = candidate;
    trial.took = took;
    contents.trials[id(contents.header.cells[0])].push_back(trial);
  };
  add(cpu(16), 0.1);
  add(cpu(24), 0.2);
  add(cpu(48), 0.4);
  add(cpu(48), 0.2);  // more blocks
  contents.final_seconds[id(contents.header.cells[0])] = 4;
  return contents;
}

CellWorkload workload(int64_t tokens, int64_t trials) {
  const Cell cell = fake::small_cell(tokens);
  return {id(cell), trials, flops(product_of(make_problem(cell)))};
}

double seconds(const JournalContents& contents, int64_t tokens, int64_t trials, bool* guessed = nullptr,
               Regime regime = Regime::burst) {
  return forecast_seconds(workload(tokens, trials), pace_of(contents), contents.header.device, regime, guessed);
}

TEST(Estimate, ACellOfTheJournalTakesWhatItTook) {
  bool guessed = true;
  EXPECT_NEAR(seconds(journal(), kTokens, 10, &guessed), 10 * 0.3 + 4, 1e-9);
  EXPECT_FALSE(guessed);
}

TEST(Estimate, TimesOfCellsThatTookTurnsOverlap) {
  JournalContents by_turns = journal();
  by_turns.header.at_once = 2;
  for (const int64_t tokens : {kTokens, kOthers})
    EXPECT_NEAR(seconds(by_turns, tokens, 10), seconds(journal(), tokens, 10) / 2, 1e-9);
}

TEST(Estimate, AnotherCellIsScaledByTheJournals) {
  bool guessed = true;
  JournalContents twice = journal();
  for (Trial& trial : twice.trials.begin()->second) trial.took *= 2;
  twice.final_seconds.begin()->second *= 2;
  const double once = seconds(journal(), kOthers, 10, &guessed);
  EXPECT_FALSE(guessed);
  EXPECT_NEAR(seconds(twice, kOthers, 10), 2 * once, 1e-9);
  EXPECT_GT(once, seconds(journal(), kTokens, 10)) << "a larger problem takes longer";
}

TEST(Estimate, WithoutTimesItIsAGuess) {
  bool guessed = false;
  JournalContents old = journal();  // of a version that wrote no times
  for (Trial& trial : old.trials.begin()->second) trial.took = 0;
  old.final_seconds.clear();
  JournalContents none;
  none.header = old.header;
  EXPECT_EQ(seconds(old, kTokens, 10, &guessed), seconds(none, kTokens, 10));
  EXPECT_TRUE(guessed);
}

TEST(Estimate, GuessesGrowWithTrialsProblemsAndLoad) {
  JournalContents none;
  none.header.device = {.kind = DeviceKind::cuda, .name = "GPU", .id = "GPU-1", .processors = 132};
  const double base = seconds(none, kTokens, 10);
  EXPECT_GT(base, 0);
  EXPECT_GT(seconds(none, kTokens, 11), base);
  EXPECT_GT(seconds(none, kOthers, 10), base);
  EXPECT_GT(seconds(none, kTokens, 10, nullptr, Regime::sustained), base);
}

TEST(Estimate, EachTrialOfARunTellsItsTime) {
  fake::Tuning tuning;
  tuning.backend.script.before = [](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(2);
  };
  tuning.run();
  for (const Trial& trial : tuning.trials) EXPECT_GE(trial.took, 2e-3) << text(trial.candidate);
}

}  // namespace
}  // namespace moetune
