// The verdicts of `check`, on a backend without noise and on one with a great deal of it.
#include "check/check.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "checks.h"
#include "error_of.h"

namespace moetune {
namespace {

using fake::contender;
using fake::FakeBackend;
using fake::Script;
using fake::Tuning;

struct Checking {
  FakeBackend backend;
  CheckRequest request;
  std::atomic<bool> stop{false};
  std::vector<Finding> heard;

  explicit Checking(Script script) : backend(std::move(script)) {}
  CheckResult result(const TunedTable& table) {
    return check(
        table, backend, request, [this](const CellFinding& f) { heard.push_back(f.finding); }, stop);
  }
  std::vector<CellFinding> run(const TunedTable& table) { return result(table).findings; }
  CellFinding one(const TunedTable& table) { return run(table).at(0); }
};

TEST(Check, UnchangedCodeIsEquivalentAfterTheFirstRounds) {
  Checking checking({});
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_EQ(finding.rounds, 15);
  EXPECT_EQ(finding.control, "loop");
  EXPECT_NEAR(finding.change.value, 0, 1e-9);
  EXPECT_NEAR(finding.before_seconds, 100e-6, 1e-9);
  EXPECT_NEAR(finding.now.time.value, 100e-6, 1e-9);
  EXPECT_EQ(checking.heard, std::vector<Finding>{Finding::equivalent});
}

TEST(Check, ASlowdownIsSeenTwiceBeforeItIsARegression) {
  Checking checking(slowed(1.1));
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_NEAR(finding.change.value, 0.1, 1e-9);
  EXPECT_EQ(finding.rounds, 30);
  EXPECT_EQ(checking.backend.loads, 2);  // the second set has new operands
  EXPECT_TRUE(holds(finding.reason, "its ratio to loop changed by +10.0 %")) << finding.reason;
  EXPECT_TRUE(holds(finding.reason, "; its ratio to the default by +0.0 %")) << finding.reason;  // which is as slow
  EXPECT_EQ(finding.by_ratio, Finding::regressed);
  EXPECT_EQ(finding.by_time, Finding::regressed);
}

// The same code `factor` times as slow, beside a loop that is `loop` times as slow, on processors that are busy.
Script machine(double factor, double loop = 1, double waited = 0) {
  Script script = slowed(factor);
  script.baselines = {{"loop", loop * 300e-6}};
  script.waited = waited;
  return script;
}

TEST(Check, TheControlAndTheProcessorsSayWhatAChangeMeans) {
  const struct {
    Script now;
    Finding finding;
    std::string words = {};
    Remedy remedy = Remedy::none;
    double waited_then = 0;
  } cases[] = {
      {machine(1.04), Finding::equivalent},
      {machine(1.06), Finding::regressed},
      {machine(0.9), Finding::improved, "changed by -10.0 %"},
      {machine(0.97), Finding::equivalent},
      {machine(1.2, 1.2), Finding::equivalent},
      {machine(1.8, 1.8), Finding::equivalent},
      {machine(1.8, 1.6), Finding::untrusted, "loop itself takes 1.60 times as long as in the table", Remedy::again},
      {machine(10, 10), Finding::untrusted, "loop itself takes 10.00 times", Remedy::again},
      {machine(0.1, 0.1), Finding::untrusted, "loop itself takes 0.10 times", Remedy::again},
      {machine(1, 1, 0.5), Finding::equivalent},
      {machine(1.1, 1, 0.04), Finding::regressed},
      {machine(1.1, 1, 0.2), Finding::untrusted, "other programs took 20 % of the processors' time while this was",
       Remedy::again},
      // More rounds find the same table.
      {machine(1.1), Finding::untrusted, "20 % of the processors' time while the table was made", Remedy::tune, 0.2}};
  for (const auto& one : cases) {
    const CellFinding finding = Checking(one.now).one(tuned({.waited = one.waited_then}));
    EXPECT_EQ(finding.finding, one.finding) << finding.reason;
    EXPECT_TRUE(one.finding != Finding::untrusted || finding.remedy == one.remedy) << finding.reason;
    EXPECT_TRUE(holds(finding.reason, one.words)) << finding.reason;
  }
  Checking tolerant(slowed(1.06));
  tolerant.request.threshold = 0.08;
  EXPECT_EQ(tolerant.one(tuned()).finding, Finding::equivalent);
}

TEST(Check, ALargeSpeedupThatChanceExplainsIsNoEquality) {
  int explained = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Script fast = slowed(0.5);
    fast.noise = {.sigma = 0.5};
    fast.seed = seed;
    const CellFinding finding = Checking(fast).one(tuned());
    EXPECT_FALSE(finding.change.value < -0.3 && finding.finding == Finding::equivalent) << finding.reason;
    if (!holds(finding.reason, "chance explains such a speedup")) continue;
    ++explained;
    EXPECT_EQ(finding.finding, Finding::inconclusive) << finding.reason;
    EXPECT_EQ(finding.remedy, Remedy::rounds);
  }
  EXPECT_GT(explained, 0);
}

TEST(Check, AnUntrustedTableIsNotWaitedFor) {
  Checking checking(slowed(1.1));
  checking.request.patience = 600;
  EXPECT_EQ(checking.one(tuned({.waited = 0.2})).rounds, 30);
}

TEST(Check, WithoutABaselineTheDefaultIsTheControl) {
  Script alone;
  alone.baselines = {};
  const TunedTable table = tuned(alone);
  const Candidate winner = table.entries.at(0).candidate;
  alone.seconds = [winner](const Candidate& c) { return (c == winner ? 1.1 : 1.0) * fake::formula(c); };
  const CellFinding finding = Checking(alone).one(table);
  EXPECT_EQ(finding.control, "default");
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_FALSE(holds(finding.reason, "its ratio to the default by")) << finding.reason;
}

TEST(Check, WithoutAnyControlNothingCanBeSaid) {
  Tuning tuning({.baselines = {}});
  tuning.request.max_candidates = 1;  // the winner is the default
  Checking checking({.baselines = {}});
  const CellFinding finding = checking.one(tuning.run());
  EXPECT_EQ(finding.finding, Finding::inconclusive);
  EXPECT_TRUE(holds(finding.reason, "no rival that runs here")) << finding.reason;
  EXPECT_TRUE(checking.backend.calls.empty());
}

TEST(Check, ABaselineThatIsMissingHereIsSkipped) {
  const TunedTable table = tuned({.baselines = {{"magic", 200e-6}, {"loop", 300e-6}}});
  EXPECT_EQ(Checking({}).one(table).control, "loop");
}

TEST(Check, TheFastestBaselineJudgesAndAnotherThatMovedHidesNothing) {
  const TunedTable table = tuned({.baselines = {{"loop", 300e-6}, {"grouped", 200e-6}}});
  Script slow = slowed(1.1);
  slow.baselines = {{"loop", 1.06 * 300e-6}, {"grouped", 200e-6}};
  Checking checking(slow);
  const CellFinding finding = checking.one(table);
  EXPECT_EQ(finding.control, "grouped");
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_NEAR(finding.control_before_seconds, 200e-6, 1e-9);
  EXPECT_NEAR(finding.control_now_seconds, 200e-6, 1e-9);
  EXPECT_TRUE(holds(finding.reason, "its ratio to grouped changed by +10.0 %")) << finding.reason;
  EXPECT_TRUE(holds(finding.reason, "; its ratio to loop by +3.8 %")) << finding.reason;
}

// Throws `fault` in the calls that `hits` picks, counted over those that reach it.
Script failing(const CandidateFault& fault, std::function<bool(const std::string& call, const Contender&)> hits,
               Script script = {}) {
  script.before = [=](const std::string& call, const Contender& who) {
    if (hits(call, who)) throw fault;
  };
  return script;
}

TEST(Check, ARivalThatFailsIsLeftOut) {
  const std::vector<std::pair<std::string, double>> both = {{"loop", 300e-6}, {"grouped", 200e-6}};
  const TunedTable table = tuned({.baselines = both});
  const Candidate fallback = find_rival(table.entries[0], "default")->candidate;
  ASSERT_NE(fallback, table.entries[0].candidate);
  const CandidateFault fault(Status::launch_error, "no");
  const auto is_loop = [](const std::string&, const Contender& who) { return who.baseline == "loop"; };
  const auto is_default = [=](const std::string&, const Contender& who) { return who.candidate == fallback; };
  const CellFinding finding = Checking(failing(fault, is_loop, {.baselines = both})).one(table);
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_FALSE(holds(finding.reason, "ratio to loop")) << finding.reason;
  EXPECT_TRUE(holds(finding.reason, "its ratio to the default by +0.0 %")) << finding.reason;
  const CellFinding slower = Checking(failing(fault, is_default, slowed(1.1, {.baselines = both}))).one(table);
  EXPECT_EQ(slower.finding, Finding::regressed);
  EXPECT_FALSE(holds(slower.reason, "ratio to the default")) << slower.reason;
}

TEST(Check, FaultsOfTheWinnerOfItsControlAndOfTheTableAreDistinguished) {
  const auto of_winner = [](const std::string& call, const Contender& who) {
    return call == "sample" && who.baseline.empty();
  };
  const auto ninth = [=, count = 0](const std::string& call, const Contender& who) mutable {
    return of_winner(call, who) && ++count == 9;
  };
  const auto of_loop = [](const std::string&, const Contender& who) { return who.baseline == "loop"; };
  Script wrong, uncompiled, crowded;
  wrong.verify = [](const Contender& who) { return who.baseline.empty() ? fake::wrong() : fake::right(); };
  uncompiled.compile = [](const Candidate&) {
    return CompileResult{.status = Status::compile_error, .reason = "no such knob"};
  };
  crowded.load = [](const Problem&) { throw OutOfMemory("8 GB are free", 9); };
  const TunedTable table = tuned();
  TunedTable alone = table, other_rows = table, hurried = table;
  std::erase_if(alone.entries[0].rivals, [](const Rival& rival) { return rival.name == "default"; });
  std::swap(other_rows.entries[0].m_sizes[0], other_rows.entries[0].m_sizes[1]);
  other_rows.entries[0].m_sizes[0] += 1;
  for (Rival& rival : hurried.entries[0].rivals) rival.measurement.time.samples = 3;
  const struct {
    const TunedTable& table;
    Script now;
    Finding finding;
    std::string words;
    Remedy remedy = Remedy::none;
  } cases[] = {{table, wrong, Finding::wrong_result, "7 of 2048 elements differ"},
               {hurried, wrong, Finding::wrong_result, "7 of 2048 elements differ"},
               {table, uncompiled, Finding::failed, "no such knob"},
               {table, failing({Status::crashed, "signal 11"}, of_winner), Finding::failed, "signal 11"},
               {alone, failing({Status::timeout, "too long"}, ninth), Finding::failed, "too long"},
               {table, failing({Status::launch_error, "cuBLAS is missing"}, of_loop), Finding::inconclusive,
                "its control loop fails: cuBLAS is missing", Remedy::tune},
               {table, crowded, Finding::inconclusive, "out of memory: 8 GB are free"},
               {other_rows, {}, Finding::inconclusive, "its trace has changed", Remedy::tune},
               {hurried, {}, Finding::inconclusive, "cut short", Remedy::tune}};
  for (const auto& one : cases) {
    Checking checking(one.now);
    const CellFinding finding = checking.one(one.table);
    EXPECT_EQ(finding.finding, one.finding) << one.words;
    EXPECT_TRUE(holds(finding.reason, one.words)) << finding.reason;
    EXPECT_EQ(finding.remedy, one.remedy) << one.words;
    EXPECT_TRUE(one.finding != Finding::wrong_result || checking.backend.count("sample") == 0);  // never timed
  }
}

// A table of a noisy machine: the winner's ratio to loop, and its time if asked, are known to 20 %.
TunedTable noisy_table(bool time_too) {
  TunedTable table = tuned();
  Entry& entry = table.entries[0];
  Rival& loop = entry.rivals.back();
  loop.ratio.low /= 1.2, loop.ratio.high *= 1.2;
  const double seconds = entry.measurement.time.value;
  if (time_too) entry.measurement.time = {seconds, seconds / 1.2, seconds * 1.2, 15};
  return table;
}

TEST(Check, TheTablesOwnUncertaintyCounts) {
  const TunedTable table = noisy_table(true);
  Checking checking(slowed(1.1));
  const CellFinding finding = checking.one(table);
  EXPECT_EQ(finding.finding, Finding::inconclusive);  // 10 %, give or take 20
  EXPECT_EQ(finding.rounds, 60);
  EXPECT_NEAR(finding.change.high, 1.1 * 1.2 - 1, 0.01);
  EXPECT_TRUE(holds(finding.reason, "60 rounds cannot tell that ratio from noise: the table's own interval is wider"))
      << finding.reason;
  EXPECT_EQ(finding.remedy, Remedy::tune);  // however many rounds
}

TEST(Check, AHugeSlowdownNeedsNoNarrowInterval) {
  const TunedTable table = noisy_table(true);
  EXPECT_EQ(Checking(slowed(4)).one(table).finding, Finding::regressed);
  EXPECT_EQ(Checking(slowed(2)).one(table).finding, Finding::inconclusive);  // 3.8 half intervals
}

TEST(Check, ADoubledTimeIsARegressionEvenIfTheRatioIsNoisy) {
  const CellFinding finding = Checking(slowed(106.0 / 54)).one(noisy_table(false));
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_EQ(finding.by_ratio, Finding::inconclusive);
  EXPECT_EQ(finding.by_time, Finding::regressed);
  EXPECT_NEAR(finding.time_change.value, 106.0 / 54 - 1, 1e-9);
  EXPECT_NEAR(finding.time_change.high, 106.0 / 54 - 1, 1e-9);
  EXPECT_EQ(finding.rounds, 30);  // seen twice
  EXPECT_TRUE(holds(finding.reason,
                    "its time changed by +96.3 % (+96.3 % to +96.3 %) and that of loop by +0.0 %; their "
                    "ratio, +96.3 % ("))
      << finding.reason;
  EXPECT_TRUE(holds(finding.reason, "is too noisy to tell")) << finding.reason;
}

TEST(Check, ATimeThatGrowsWithTheBaselinesIsNoRegression) {
  Script slow = slowed(1.2);
  slow.baselines = {{"loop", 1.18 * 300e-6}};
  const CellFinding finding = Checking(slow).one(noisy_table(false));
  EXPECT_EQ(finding.by_time, Finding::regressed);
  EXPECT_EQ(finding.finding, Finding::inconclusive) << finding.reason;
}

TEST(Check, ATimeThatIsLongerInOneLookOnlyIsNoRegression) {
  Checking checking(Script{});
  FakeBackend* self = &checking.backend;
  self->script.seconds = [self](const Candidate& c) { return (self->loads <= 1 ? 2 : 1) * fake::formula(c); };
  const CellFinding finding = checking.one(noisy_table(false));
  EXPECT_EQ(finding.finding, Finding::inconclusive) << finding.reason;
  EXPECT_EQ(finding.by_time, Finding::equivalent);
}

TEST(Check, ASlowerMachineIsReportedBesideEquivalence) {
  Script slow = slowed(1.2);
  slow.baselines = {{"loop", 1.2 * 300e-6}};
  const CellFinding finding = Checking(slow).one(tuned());
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_EQ(finding.by_time, Finding::regressed);
  EXPECT_TRUE(is_slower_machine(finding));
  EXPECT_TRUE(holds(finding.reason, "; the time of loop changed by +20.0 %: the machine is slower")) << finding.reason;
  EXPECT_FALSE(is_slower_machine(Checking({}).one(tuned())));
}

// Slower until the operands have been made anew so often.
struct Disturbed {
  FakeBackend* self = nullptr;
  Checking checking;
  explicit Disturbed(int loads, double factor = 1.1) : checking(Script{}) {
    self = &checking.backend;
    self->script.seconds = [this, loads, factor](const Candidate& c) {
      return (self->loads <= loads ? factor : 1.0) * fake::formula(c);
    };
  }
};

TEST(Check, ATransientDisturbanceIsNotConfirmed) {
  Disturbed disturbed(1);
  const CellFinding finding = disturbed.checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_NEAR(finding.change.value, 0, 1e-9);  // by what was measured since
  EXPECT_EQ(finding.rounds, 15);
}

TEST(Check, PatienceWaitsForALongDisturbanceToPass) {
  Disturbed impatient(4), patient(4);
  patient.checking.request.patience = 600;
  EXPECT_EQ(impatient.checking.one(tuned()).finding, Finding::regressed);
  EXPECT_EQ(patient.checking.one(tuned()).finding, Finding::equivalent);
  EXPECT_EQ(patient.checking.backend.loads, 5);  // and no longer than it lasts
}

TEST(Check, PatienceDoesNotForgiveWhatStays) {
  Checking checking(slowed(1.1));
  checking.request.patience = 0.1;
  const auto begin = std::chrono::steady_clock::now();
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_GT(finding.rounds, 30);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
}

TEST(Check, ABudgetEndsPatience) {
  Checking checking(slowed(1.1));
  checking.request.patience = 600;
  checking.request.time_budget = 1e-9;
  EXPECT_EQ(checking.one(tuned()).rounds, 30);  // it is seen twice all the same
}

struct Looking : Checking {
  explicit Looking(Script script) : Checking(std::move(script)) { request.looks = 8, request.rounds = 42; }
};

TEST(Check, RoundsAreSharedOutToLooks) {
  Looking checking(slowed(1.1));
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::regressed);
  EXPECT_EQ(finding.rounds, 84);
  EXPECT_EQ(checking.backend.loads, 16);
}

TEST(Check, ClearEquivalenceEndsAfterFiveLooksAndWaitsForNothing) {
  Looking checking({.waited = 0.5});
  checking.request.wait = 1;
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_EQ(finding.rounds, 26);
  EXPECT_EQ(checking.backend.loads, 5);
  EXPECT_EQ(checking.backend.count("sample loop"), 27);  // and once to try it out
}

TEST(Check, EqualRatiosBesideADisturbedControlAreMeasuredToTheEnd) {
  Script slow = slowed(1.2);
  slow.baselines = {{"loop", 1.2 * 300e-6}};
  EXPECT_EQ(Looking(slow).one(tuned()).rounds, 42);
}

// What a machine does to all of a look: in any one of them 4 % are in its nature.
struct Wavering {
  FakeBackend* self = nullptr;
  Checking checking;
  explicit Wavering(double factor) : checking(Script{}) {
    self = &checking.backend;
    checking.request.looks = 8;
    checking.request.rounds = 40;
    checking.request.max_rounds = 160;
    self->script.seconds = [this, factor](const Candidate& c) {
      return factor * (1 + 0.04 * std::sin(2.4 * self->loads)) * fake::formula(c);
    };
  }
};

TEST(Check, AChangeThatVariesBetweenLooksIsNoRegression) {
  const CellFinding finding = Wavering(1).checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::equivalent);
  EXPECT_GT(finding.change.high - finding.change.low, 0.02);  // the interval knows of it
  EXPECT_EQ(Wavering(1.1).checking.one(tuned()).finding, Finding::regressed);
}

TEST(Check, WaitsForBusyProcessorsAndNoLonger) {
  Checking checking(slowed(1.1));
  int samples = 0;
  checking.backend.script.before = [&](const std::string& call, const Contender&) {
    if (call == "sample") checking.backend.script.waited = ++samples < 20 ? 0.5 : 0;
  };
  checking.request.wait = 60;
  const CellFinding finding = checking.one(tuned());
  EXPECT_EQ(finding.finding, Finding::regressed) << finding.reason;
  EXPECT_EQ(finding.now.waited, 0);
  EXPECT_EQ(finding.rounds, 30);
}

TEST(Check, WaitsNoLongerThanItsTimeBudget) {
  Checking checking({});
  checking.backend.script.waited = 0.5;
  checking.request.wait = 60;
  checking.request.time_budget = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  checking.one(tuned());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Check, SkippedEntriesArePassedOver) {
  TunedTable table = tuned({}, {fake::small_cell(16), fake::small_cell(64)});
  table.entries[0].skipped = "out of memory";
  Checking checking({});
  const std::vector<CellFinding> findings = checking.run(table);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].cell.tokens, 64);
}

TEST(Check, StopKeepsWhatIsThere) {
  const TunedTable table = tuned({}, {fake::small_cell(16), fake::small_cell(64)});
  Checking checking({});
  checking.backend.script.before = [&](const std::string&, const Contender&) { checking.stop = true; };
  EXPECT_EQ(checking.run(table).size(), 1U);
  checking.stop = true;
  EXPECT_TRUE(checking.run(table).empty());
}

TEST(Check, AnErrorInTheMiddleComesAfterWhatWasHeard) {
  const TunedTable table = tuned({}, {fake::small_cell(16), fake::small_cell(64)});
  Checking checking({});
  checking.backend.script.load = [](const Problem& problem) {
    if (problem.routing.tokens == 64) throw machine_error("the worker is lost");
  };
  const Caught caught = error_of([&] { checking.run(table); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, "the worker is lost");
  EXPECT_EQ(checking.heard, std::vector<Finding>{Finding::equivalent});
}

TEST(Check, AStopBeforeTheSecondLookLeavesASlowdownOpen) {
  Checking checking(slowed(1.1));
  checking.backend.script.before = [&](const std::string&, const Contender&) { checking.stop = true; };
  EXPECT_EQ(checking.one(tuned()).finding, Finding::inconclusive);
}

TEST(Check, AStopBeforeItsPatienceLeavesASlowdownOpen) {
  Checking checking(slowed(1.1));
  checking.request.patience = 60;
  int samples = 0;
  checking.backend.script.before = [&](const std::string& call, const Contender&) {
    if (call == "sample" && ++samples > 60) checking.stop = true;
  };
  const CellFinding finding = checking.one(tuned());
  EXPECT_GE(finding.rounds, 30);  // it was seen twice
  EXPECT_EQ(finding.finding, Finding::inconclusive) << finding.reason;
}

TEST(Check, ABudgetEndsTheRoundsOfAnUncertainCell) {
  TunedTable table = tuned();
  Rival& loop = table.entries[0].rivals.back();
  loop.ratio.low /= 1.2, loop.ratio.high *= 1.2;
  Checking patient({}), hurried({});
  hurried.request.time_budget = 1e-9;
  EXPECT_EQ(patient.one(table).rounds, 60);
  EXPECT_EQ(hurried.one(table).rounds, 15);
}

TEST(RequireComparable, RefusesAnotherDeviceWithBothNames) {
  TunedTable table = tuned();
  DeviceInfo here = table.device;
  EXPECT_EQ(error_of([&] { require_comparable(table, here); }).exit, Exit::yes);
  here.memory_bytes += 4096;  // as much as another driver may leave
  EXPECT_EQ(error_of([&] { require_comparable(table, here); }).exit, Exit::yes);
  here.name = "other";
  const Caught caught = error_of([&] { require_comparable(table, here); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, "the table is of fake with 2 threads, this device is other with 2 threads");
  EXPECT_TRUE(holds(caught.hint, "tune here first"));
  here.name = table.device.name;
  here.processors = 64;
  EXPECT_EQ(error_of([&] { require_comparable(table, here); }).exit, Exit::machine);
}

// A small virtual machine: 2.5 % from block to block, a wave of 10 %, and one block in twenty takes half as long again.
Script noisy_machine(uint64_t seed, double factor = 1) {
  Script script = slowed(factor);
  script.noise = {.sigma = 0.025, .drift = 0.1, .outliers = 0.05};
  script.seed = seed;
  return script;
}

std::map<Finding, int> simulate(int times, double factor) {
  std::map<Finding, int> counts;
  for (int i = 0; i < times; ++i) {
    const auto seed = static_cast<uint64_t>(1000 + 2 * i);
    const TunedTable table = tuned(noisy_machine(seed));
    ++counts[Checking(noisy_machine(seed + 1, factor)).one(table).finding];
  }
  for (const auto& [finding, count] : counts) testing::Test::RecordProperty(std::string(name(finding)), count);
  return counts;
}

TEST(CheckSimulation, UnchangedCodeOnANoisyMachineIsNeverARegression) {
  const std::map<Finding, int> counts = simulate(60, 1);
  EXPECT_EQ(counts.contains(Finding::regressed), false);
  EXPECT_EQ(counts.contains(Finding::untrusted), false);
  EXPECT_GE(counts.at(Finding::equivalent), 58);
}

TEST(CheckSimulation, TenPercentOnANoisyMachineIsAlwaysARegression) {
  EXPECT_EQ(simulate(60, 1.1).at(Finding::regressed), 60);
}

// How many of 100 cells are called equivalent before the last look, where looks differ by 2 % (one standard deviation).
int ended_early(double factor) {
  const TunedTable table = tuned();
  Random random(3);
  int early = 0;
  for (int i = 0; i < 100; ++i) {
    Looking checking({});
    double nature = 1;
    checking.backend.script.load = [&](const Problem&) { nature = std::exp(0.02 * random.normal()); };
    checking.backend.script.seconds = [&](const Candidate& c) { return factor * nature * fake::formula(c); };
    const CellFinding finding = checking.one(table);
    early += finding.finding == Finding::equivalent && finding.rounds < checking.request.rounds;
  }
  return early;
}

TEST(CheckSimulation, ClearEquivalenceHidesNoSlowdown) {
  EXPECT_GT(ended_early(1), 50);
  EXPECT_LE(ended_early(1.05), 2);
}

TEST(CheckSimulation, AVeryNoisyMachineIsInconclusive) {
  std::map<Finding, int> counts;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Script script;
    script.noise = {.sigma = 0.3};
    script.seed = 500 + 2 * seed;
    const TunedTable table = tuned(script);
    ++script.seed;
    ++counts[Checking(script).one(table).finding];
  }
  EXPECT_EQ(counts.contains(Finding::regressed), false);
  EXPECT_GE(counts[Finding::inconclusive], 17);
}

}  // namespace
}  // namespace moetune
