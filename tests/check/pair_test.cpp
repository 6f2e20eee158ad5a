// `check` against another program: the same winners on two backends in the same rounds.
#include <gtest/gtest.h>

#include <cmath>

#include "check/check.h"
#include "checks.h"
#include "error_of.h"

namespace moetune {
namespace {

using fake::FakeBackend;
using fake::Script;

TunedTable table_of(int count) {
  std::vector<Cell> cells;
  for (int i = 0; i < count; ++i) cells.push_back(fake::small_cell(16 + 2 * i));
  return tuned({}, std::move(cells));
}

struct Pair {
  FakeBackend here, there;
  CheckRequest request;
  std::atomic<bool> stop{false};
  std::vector<CellFinding> heard;

  explicit Pair(Script now, Script other = {}) : here(std::move(now)), there(std::move(other)) {
    request.against = Against{&there, "old/moetune"};
  }
  CheckResult run(const TunedTable& table) {
    return check(
        table, here, request, [this](const CellFinding& finding) { heard.push_back(finding); }, stop);
  }
  CellFinding one() { return run(tuned()).findings.at(0); }
};

TEST(Pair, TheSameProgramIsEquivalent) {
  Pair pair({});
  const CellFinding finding = pair.one();
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_NEAR(finding.change.value, 0, 1e-9);
  EXPECT_NEAR(finding.before_seconds, 100e-6, 1e-9);
  EXPECT_EQ(finding.control, "loop");
  EXPECT_TRUE(holds(finding.reason, "its time differs from that with old/moetune by +0.0 %")) << finding.reason;
  EXPECT_TRUE(holds(finding.reason, "; that of loop by +0.0 %")) << finding.reason;
}

TEST(Pair, OnlyTheWinnersOfTheTableCount) {
  TunedTable table = tuned();
  Entry& entry = table.entries[0];
  entry.measurement = {.time = {1, 1, 1, 2}, .launches = 2, .clock_mhz = 0, .waited = 0.9};
  entry.rivals.clear();
  EXPECT_EQ(Pair({}).run(table).findings.at(0).finding, Finding::equivalent);
  EXPECT_EQ(Pair(slowed(1.1)).run(table).findings.at(0).finding, Finding::regressed);
}

TEST(Pair, ASlowdownHereIsARegressionAndASlowdownThereAnImprovement) {
  Pair slower(slowed(1.1));
  const CellFinding regressed = slower.one(), improved = Pair({}, slowed(1.2)).one();
  EXPECT_EQ(regressed.finding, Finding::regressed);
  EXPECT_NEAR(regressed.change.value, 0.1, 1e-9);
  EXPECT_EQ(regressed.rounds, 30);  // seen twice
  EXPECT_EQ(slower.here.loads, 2);
  EXPECT_EQ(slower.there.loads, 2);
  EXPECT_EQ(improved.finding, Finding::improved);
  EXPECT_NEAR(improved.change.value, 1 / 1.2 - 1, 1e-9);
}

TEST(Pair, BothSidesAlternate) {
  Pair pair({});
  std::string turns;
  const auto note = [&](char side) {
    return [&turns, side](const std::string& call, const Contender& who) {
      if (call == "sample" && who.baseline.empty()) turns += side;
    };
  };
  pair.here.script.before = note('h');
  pair.there.script.before = note('t');
  pair.one();
  EXPECT_EQ(std::ranges::count(turns, 'h'), std::ranges::count(turns, 't'));
  EXPECT_TRUE(holds(turns.substr(2), "ht")) << turns;
  EXPECT_TRUE(holds(turns.substr(2), "th")) << turns;
}

TEST(Pair, AControlThatDiffersMakesAChangeUntrustedAndMayHideOne) {
  const struct {
    double factor, control;
    Finding finding;
    std::string words = {};
  } cases[] = {{1.1, 1.1, Finding::untrusted, "but loop, which is the same on both sides, changed by +10.0 %"},
               {1, 0.5, Finding::untrusted, "but loop, which is the same on both sides, changed by -50.0 %"},
               {1, 0.9, Finding::equivalent}};
  for (const auto& one : cases) {
    const CellFinding finding = Pair(slowed(one.factor, {.baselines = {{"loop", one.control * 300e-6}}})).one();
    EXPECT_EQ(finding.finding, one.finding) << finding.reason;
    EXPECT_TRUE(holds(finding.reason, one.words)) << finding.reason;
  }
}

// The control's own noise is no reason to trust it.
TEST(Pair, AControlThatDiffersMuchAndVariesIsDoubtedToo) {
  Script favoured = slowed(0.1);
  favoured.baselines = {{"loop", 30e-6}};
  favoured.noise = {.sigma = 0.8};
  const CellFinding finding = Pair(favoured).one();
  EXPECT_TRUE(finding.elsewhere);
  EXPECT_TRUE(finding.finding == Finding::untrusted || finding.finding == Finding::inconclusive) << finding.reason;
  EXPECT_EQ(finding.reason.find("loop"), finding.reason.rfind("loop")) << finding.reason;  // named once
}

TEST(Pair, WithoutACommonBaselineTheTimesDecide) {
  Script other = {.baselines = {{"grouped", 200e-6}}};
  const CellFinding finding = Pair(slowed(1.1), other).one();
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_EQ(finding.control, "");
}

TEST(Pair, AFaultHereIsTheWinnersAndOneThereLeavesNothingToCompareWith) {
  const auto dies = [](int when) {
    Script script;
    script.before = [when, samples = 0](const std::string& call, const Contender& who) mutable {
      if (call == "sample" && who.baseline.empty() && ++samples == when)
        throw CandidateFault(Status::crashed, "signal 11");
    };
    return script;
  };
  Script wrong, unknown, uncompiled, small;
  wrong.verify = [](const Contender&) { return fake::wrong(); };
  unknown.compile = [](const Candidate&) -> CompileResult { throw request_error("unknown knob 'pace'"); };
  uncompiled.compile = [](const Candidate&) {
    return CompileResult{.status = Status::compile_error, .reason = "no such file"};
  };
  small.load = [](const Problem&) { throw OutOfMemory("8 GB are free", 9); };
  EXPECT_EQ(Pair(wrong).one().finding, Finding::wrong_result);
  EXPECT_EQ(Pair(dies(9)).one().finding, Finding::failed);
  const std::string cannot = "old/moetune cannot run this winner, so there is nothing to compare with: ";
  for (const auto& [there, words] :
       {std::pair{wrong, cannot + "its result is wrong: 7 of 2048 elements differ"},
        {unknown, cannot + "old/moetune does not support it: unknown knob 'pace'"},
        {uncompiled, cannot + "no such file"},
        {small, std::string("out of memory: old/moetune and this program hold their operands at the same time: 8 GB")},
        {dies(9), cannot + "signal 11"}}) {
    const CellFinding finding = Pair({}, there).one();
    EXPECT_EQ(finding.finding, Finding::inconclusive);
    EXPECT_TRUE(holds(finding.reason, words)) << finding.reason;
  }
}

TEST(Pair, AnErrorOfTheOtherMachineEndsTheCheck) {
  Script lost;
  lost.compile = [](const Candidate&) -> CompileResult { throw machine_error("the worker is lost"); };
  EXPECT_EQ(error_of([&] { Pair({}, lost).one(); }).what, "the worker is lost");
}

// --- many cells ---

TEST(Gate, ChangesAreConfirmedAfterAllCellsWereMeasured) {
  Pair pair(slowed(1.1));
  const CheckResult result = pair.run(table_of(3));
  ASSERT_EQ(result.findings.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.findings[i].finding, Finding::regressed);
    EXPECT_EQ(result.findings[i].cell.tokens, 16 + 2 * static_cast<int64_t>(i));  // in the table's order
  }
  EXPECT_EQ(pair.heard.size(), 3U);
  EXPECT_EQ(pair.here.loads, 6);
}

TEST(Gate, TheMeanShowsAChangeTooSmallForEachCell) {
  // 6 % in all of 12 cells, beside a noise that hides 6 % in each.
  const auto noisy = [](uint64_t seed, double factor) {
    Script script = slowed(factor);
    script.noise = {.sigma = 0.09};
    script.baselines = {};
    script.seed = seed;
    return script;
  };
  const TunedTable table = table_of(12);
  Pair slower(noisy(1, 1.06), noisy(2, 1)), same(noisy(3, 1), noisy(4, 1));
  for (Pair* pair : {&slower, &same}) {
    pair->request.threshold = 0.04;
    pair->request.max_rounds = pair->request.rounds;
  }
  const CheckResult found = slower.run(table), nothing = same.run(table);
  EXPECT_EQ(std::ranges::count(found.findings, Finding::regressed, &CellFinding::finding), 0);
  ASSERT_TRUE(found.mean.has_value());
  EXPECT_EQ(found.mean->finding, Finding::regressed);
  EXPECT_NEAR(found.mean->change.value, 0.06, 0.02);
  EXPECT_EQ(found.mean->cells, 12U);
  EXPECT_EQ(exit_code(found), 1);
  ASSERT_TRUE(nothing.mean.has_value());
  EXPECT_NE(nothing.mean->finding, Finding::regressed);
  EXPECT_LT(found.mean->detectable, found.findings[0].detectable);
}

TEST(Gate, AMeanThatFreshRoundsDoNotConfirmIsNoRegression) {
  Pair pair({});
  FakeBackend* self = &pair.here;
  pair.request.threshold = 0.05;
  // Slower while each cell is measured for the first time, in cells whose noise keeps them from being suspects.
  self->script.seconds = [self](const Candidate& c) { return (self->loads <= 12 ? 1.08 : 1.0) * fake::formula(c); };
  self->script.noise = {.sigma = 0.14};
  self->script.baselines = {};
  pair.request.max_rounds = pair.request.rounds;
  const CheckResult result = pair.run(table_of(12));
  EXPECT_EQ(std::ranges::count(result.findings, Finding::regressed, &CellFinding::finding), 0);
  EXPECT_GT(self->loads, 12);  // fresh rounds were asked for
  EXPECT_NE(result.mean->finding, Finding::regressed);
}

TEST(Gate, OneCellHasNoMean) { EXPECT_FALSE(Pair({}).run(tuned()).mean.has_value()); }

// Cells of a machine with noise, many times: what a user meets in a year of commits.
struct Tally {
  int regressed = 0, cells = 0, runs_with_one = 0, means = 0;
};

// Operands lie elsewhere in each look: that moves all its times by the same share.
void waver(FakeBackend& backend, double share, double factor, uint64_t seed) {
  FakeBackend* self = &backend;
  backend.script.seconds = [self, share, factor, seed](const Candidate& c) {
    Random random(1000 * seed + static_cast<uint64_t>(self->loads));
    return factor * std::exp(share * random.normal()) * fake::formula(c);
  };
}

Tally simulate(int runs, double factor, double threshold, double sigma) {
  const TunedTable table = table_of(12);
  Tally tally;
  for (int run = 0; run < runs; ++run) {
    Script now, other;
    now.noise = other.noise = {.sigma = sigma, .outliers = 0.02};
    now.seed = static_cast<uint64_t>(100 + 2 * run), other.seed = now.seed + 1;
    Pair pair(now, other);
    pair.request.threshold = threshold;
    pair.request.looks = 5;
    waver(pair.here, sigma / 2, factor, now.seed);
    waver(pair.there, sigma / 2, 1, other.seed);
    const CheckResult result = pair.run(table);
    const auto regressed = std::ranges::count(result.findings, Finding::regressed, &CellFinding::finding);
    tally.regressed += static_cast<int>(regressed);
    tally.runs_with_one += regressed > 0;
    tally.cells += static_cast<int>(result.findings.size());
    tally.means += result.mean && result.mean->finding == Finding::regressed;
  }
  return tally;
}

TEST(GateSimulation, TheSameProgramIsNeverSlowerInThirtyRunsOfTwelveCells) {
  const Tally tally = simulate(30, 1, 0.01, 0.004);
  EXPECT_EQ(tally.cells, 360);
  EXPECT_EQ(tally.regressed, 0);
  EXPECT_EQ(tally.means, 0);
}

TEST(GateSimulation, TheSameProgramIsNeverSlowerOnANoisyMachineAtTenPercent) {
  const Tally tally = simulate(30, 1, 0.10, 0.05);
  EXPECT_EQ(tally.regressed, 0);
  EXPECT_EQ(tally.means, 0);
}

TEST(GateSimulation, ASlowdownOverTheThresholdIsFound) {
  EXPECT_GE(simulate(5, 1.015, 0.01, 0.004).regressed, 57);  // 19 of 20 cells
  EXPECT_EQ(simulate(5, 1.03, 0.01, 0.004).regressed, 60);
}

TEST(GateSimulation, WhatIsDetectableIsFoundInNineteenOfTwenty) {
  const TunedTable table = table_of(12);
  Script calm, other;
  calm.noise = other.noise = {.sigma = 0.02};
  calm.seed = 5, other.seed = 6;
  Pair pair(calm, other);
  double mean = 0;
  const CheckResult same = pair.run(table);
  for (const CellFinding& finding : same.findings) {
    EXPECT_GT(finding.detectable, pair.request.threshold);
    mean += finding.detectable / static_cast<double>(same.findings.size());
  }
  int found = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Script slow = slowed(1 + mean), quiet;
    slow.noise = quiet.noise = {.sigma = 0.02};
    slow.seed = 40 + 2 * seed, quiet.seed = 41 + 2 * seed;
    Pair slower(slow, quiet);
    const CheckResult result = slower.run(table);
    found += static_cast<int>(std::ranges::count(result.findings, Finding::regressed, &CellFinding::finding));
  }
  EXPECT_GE(found, 57);
}

}  // namespace
}  // namespace moetune
