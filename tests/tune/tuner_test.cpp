// The tuning loop: what is tried, what counts, who wins, when it stops.
#include "tune/tuner.h"

#include <gtest/gtest.h>

#include <chrono>

#include "built_in.h"
#include "error_of.h"
#include "sleep_ms.h"
#include "tune/tuning.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

using fake::cpu;
using fake::Tuning;

TEST(Tune, FindsTheBestCandidateAndDescribesItsCell) {
  Tuning tuning;
  tuning.request.time_budget = 1000;  // far more than it takes
  const auto& legal = enumerate(tuning.request.space, fake::small_cell().shape, tuning.backend.device()).legal;
  ASSERT_EQ(std::count(legal.begin(), legal.end(), tuning.fallback()), 0) << "the test needs a default outside";
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.trials.at(0).candidate, tuning.fallback());
  EXPECT_EQ(tuning.trials.at(0).measurement.time.samples, 5);
  EXPECT_GT(std::ranges::count_if(tuning.trials, [](const Trial& one) { return one.measurement.time.samples == 2; }), 5)
      << "hopeless ones";
  EXPECT_EQ(tuning.planned, 49);
  EXPECT_EQ(entry.legal, 49);
  EXPECT_EQ(entry.measured, 49);
  const Problem problem = make_problem(fake::small_cell());
  EXPECT_EQ(entry.cell, fake::small_cell());
  EXPECT_EQ(entry.m_sizes, problem.routing.m_sizes);
  EXPECT_EQ(entry.flops, flops(product_of(problem)));
  EXPECT_EQ(entry.bytes, bytes(product_of(problem)));
  EXPECT_EQ(entry.figures.rows, 32);
  EXPECT_DOUBLE_EQ(entry.occupancy, tile_occupancy(product_of(problem), 48));
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  EXPECT_NEAR(entry.measurement.time.value, 100e-6, 1e-9);
  EXPECT_TRUE(entry.verdict.ok);
  EXPECT_TRUE(entry.complete);
  EXPECT_EQ(entry.skipped, "");
}

TEST(Tune, ATableNamesToolDeviceEnvironmentAndRegime) {
  Tuning tuning;
  tuning.request.regime = Regime::sustained;
  tuning.request.tool = {{"version", "1"}};
  const TunedTable table = tuning.run();
  EXPECT_EQ(table.tool["version"], "1");
  EXPECT_EQ(table.device.name, "fake");
  EXPECT_EQ(table.environment, tuning.backend.environment());
  EXPECT_EQ(table.regime, Regime::sustained);
  EXPECT_EQ(tuning.backend.regimes, std::set{Regime::sustained});
}

TEST(Tune, TheDefaultInsideTheSpaceIsTriedOnce) {
  Tuning tuning;
  const Candidate fallback = tuning.fallback();
  tuning.request.space.variants[0].values = {{"block_m", {24, find_value(fallback, "block_m").value()}},
                                             {"block_n", {find_value(fallback, "block_n").value()}},
                                             {"block_k", {find_value(fallback, "block_k").value()}},
                                             {"threads", {2}}};
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.planned, 2);
  EXPECT_EQ(entry.measured, 2);
  EXPECT_EQ(tuning.trials.at(0).candidate, fallback);
  EXPECT_EQ(tuning.backend.count("verify " + text(fallback)), 1);
}

TEST(Tune, EveryTrialIsVerifiedBeforeItIsTimed) {
  Tuning tuning;
  tuning.run();
  std::set<std::string> verified;
  for (const std::string& call : tuning.backend.calls) {
    if (call.starts_with("verify ")) verified.insert(call.substr(7));
    if (call.starts_with("sample ")) {
      EXPECT_TRUE(verified.contains(call.substr(7))) << call;
    }
  }
  EXPECT_EQ(verified.size(), 50U);  // 49 candidates and the baseline
}

TEST(Tune, NothingIsCompiledBetweenTheTrialsOfABatch) {
  Tuning tuning;
  tuning.run();
  ASSERT_GE(tuning.backend.batches.size(), 2U);
  EXPECT_EQ(tuning.backend.batches[0], 49U);  // all at once, then the finalists
  EXPECT_EQ(tuning.backend.batches.size(), 2U);
  Tuning large;
  large.request.space.variants[0].values[0].second = {8, 16, 24, 48, 64, 72, 80, 96};
  large.request.space.variants[0].values[1].second = {32, 64, 128, 256};
  large.run();
  EXPECT_EQ(large.planned, 129);
  EXPECT_EQ(std::vector(large.backend.batches.begin(), large.backend.batches.begin() + 3),
            (std::vector<size_t>{64, 64, 1}));
}

TEST(Tune, WhatComesNextIsCompiledAheadWhileABatchIsTried) {
  Tuning tuning;
  tuning.request.space.variants[0].values = {
      {"block_m", {8, 16, 24, 48, 96}}, {"block_n", {32, 64, 128}}, {"block_k", {32, 64, 128}}, {"threads", {1, 2}}};
  tuning.request.max_candidates = 70;
  tuning.also = [&](const Event& event) {
    if (!std::get_if<TrialFinished>(&event)) return;
    EXPECT_FALSE(tuning.backend.ahead.empty());
  };
  tuning.run();
  ASSERT_EQ(tuning.backend.ahead.size(), 2U);
  ASSERT_EQ(tuning.trials.size(), 70U);
  ASSERT_EQ(tuning.backend.ahead[0].size(), 70U);
  for (size_t i = 0; i < 70; ++i) EXPECT_EQ(tuning.backend.ahead[0][i], tuning.trials[i].candidate);
  ASSERT_EQ(tuning.backend.ahead[1].size(), 6U);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(tuning.backend.ahead[1][i], tuning.trials[64 + i].candidate);
}

TEST(Tune, WhereABackendCompilesAheadEachCandidateIsTriedOnceItIsCompiled) {
  Tuning tuning;
  tuning.backend.script.compiles_ahead = true;
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  ASSERT_GE(tuning.backend.batches.size(), 49U);
  EXPECT_EQ(tuning.backend.batches[0], 1U);
  const std::vector<std::string>& calls = tuning.backend.calls;
  for (size_t trial = 0; trial < 49; ++trial) {
    const std::string name = text(tuning.trials[trial].candidate);
    const auto compiled = std::ranges::find(calls, "compile " + name);
    ASSERT_GE(calls.end() - compiled, 3) << name;
    EXPECT_EQ(compiled[1], "verify " + name);
    EXPECT_EQ(compiled[2], "sample " + name);
  }
}

TEST(Tune, ASlowCompilationDelaysNoTrial) {
  Tuning tuning;
  tuning.backend.script.compiles_ahead = true;
  tuning.backend.script.slow_to_compile = [](const Candidate& candidate) {
    return text(candidate).find("block_m=48") != std::string::npos;
  };
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  EXPECT_EQ(tuning.trials.size(), 49U);
  const auto slow = [&](const Trial& trial) { return tuning.backend.script.slow_to_compile(trial.candidate); };
  EXPECT_EQ(tuning.trials[0].candidate, tuning.fallback());
  const auto first = std::find_if(tuning.trials.begin() + 1, tuning.trials.end(), slow);
  EXPECT_GT(tuning.trials.end() - first, 1);
  EXPECT_TRUE(std::all_of(first, tuning.trials.end(), slow));
}

// Cells of one shape have the same kernels.
TEST(Tune, WhatTheNextCellBeginsWithIsCompiledLast) {
  for (const bool same_shape : {true, false}) {
    Tuning tuning;
    tuning.request.strategy = "auto";
    tuning.backend.script.compiles_ahead = true;
    Cell other = tuning.request.cells[0];
    other.tokens *= 4;
    if (!same_shape) other.shape.layer.n *= 2;
    tuning.request.cells.push_back(other);
    std::vector<Candidate> first, last;  // of the second cell; and of what is compiled ahead in the first
    tuning.also = [&](const Event& event) {
      if (const auto* finished = std::get_if<TrialFinished>(&event)) {
        if (last.empty()) last = tuning.backend.ahead.back();
        if (tuning.backend.loads == 2 && first.empty()) first.push_back(finished->trial->candidate);
      }
    };
    tuning.run();
    ASSERT_EQ(first.size(), 1U);
    const size_t calls = same_shape ? 2 : 1;
    ASSERT_GE(tuning.backend.ahead.size(), calls);
    EXPECT_EQ(last, tuning.backend.ahead[calls - 1]);
    if (!same_shape) continue;
    const std::vector<Candidate>& before = tuning.backend.ahead[0];
    ASSERT_GT(last.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), last.begin()));
    EXPECT_EQ(last[before.size()], first[0]);
  }
}

TEST(Tune, ARightButSlowerResultBeatsAFasterWrongOne) {
  Tuning tuning;
  tuning.backend.script.verify = [](const Contender& who) {
    return who.candidate == fake::best_of_small_space() ? fake::wrong() : fake::right();
  };
  const Entry entry = tuning.run_one();
  EXPECT_NE(entry.candidate, fake::best_of_small_space());
  EXPECT_NEAR(entry.measurement.time.value, 105e-6, 1e-9);  // block_k=64 beside the best
  EXPECT_EQ(entry.failed, 1);
}

TEST(Tune, CompileErrorsAreTrialsThatNeverStarted) {
  Tuning tuning;
  tuning.backend.script.compile = [](const Candidate& c) {
    if (find_value(c, "block_n") != 128) return CompileResult{};
    return CompileResult{.status = Status::compile_error, .reason = "too wide"};
  };
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.measured, 49);
  EXPECT_EQ(entry.failed, 16);
  for (const std::string& event : tuning.events)
    EXPECT_FALSE(event.starts_with("start") && holds(event, "block_n=128")) << event;
  EXPECT_EQ(std::count_if(tuning.trials.begin(), tuning.trials.end(),
                          [](const Trial& t) { return t.status == Status::compile_error && t.reason == "too wide"; }),
            16);
}

TEST(Tune, ACrashingCandidateCostsItselfAlone) {
  Tuning tuning;
  tuning.backend.script.before = [](const std::string&, const Contender& who) {
    if (find_value(who.candidate, "block_m") == 24) throw CandidateFault(Status::crashed, "signal 11");
  };
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  EXPECT_EQ(entry.failed, 12);
}

TEST(Tune, EventsComeInOrder) {
  Tuning tuning;
  tuning.request.max_candidates = 2;
  tuning.run();
  ASSERT_EQ(tuning.events.size(), 6U);
  EXPECT_EQ(tuning.events[0], "cell");
  EXPECT_EQ(tuning.events[1], "start " + text(tuning.fallback()));
  EXPECT_EQ(tuning.events[2], "finish " + text(tuning.fallback()));
  EXPECT_TRUE(tuning.events[3].starts_with("start "));
  EXPECT_EQ(tuning.events[5], "done");
}

TEST(Tune, FinishedTrialsHaveTheBestSoFarAndTheCount) {
  Tuning tuning;
  double best = 1;
  int64_t done = 0;
  tuning.also = [&](const Event& event) {
    const auto* finished = std::get_if<TrialFinished>(&event);
    if (!finished) return;
    best = std::min(best, finished->trial->measurement.time.value);
    ASSERT_NE(finished->best, nullptr);
    EXPECT_EQ(finished->best->measurement.time.value, best);
    EXPECT_EQ(finished->done, ++done);
    EXPECT_EQ(finished->planned, 49);
  };
  tuning.run();
  EXPECT_EQ(done, 49);
}

TEST(Tune, MaxCandidatesOfOneMakesTheDefaultTheWinner) {
  Tuning tuning;
  tuning.request.max_candidates = 1;
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.candidate, tuning.fallback());
  EXPECT_TRUE(entry.complete);
  ASSERT_EQ(entry.rivals.size(), 2U);
  EXPECT_EQ(entry.rivals[0].name, "default");
  EXPECT_EQ(entry.rivals[0].ratio, (Estimate{1, 1, 1}));
}

TEST(Tune, OneTableIsHandedOverAfterEachCell) {
  Tuning tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(64), fake::small_cell(64, "zipf:1")};
  const TunedTable table = tuning.run();
  EXPECT_EQ(table.entries.size(), 3U);
  EXPECT_EQ(tuning.tables, (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(table.entries[2].cell.routing.name, "zipf");
  EXPECT_EQ(tuning.backend.loads, 3);
}

TEST(Tune, AFaultOfTheMachineKeepsTheCellsBefore) {
  Tuning tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(64)};
  tuning.backend.script.load = [](const Problem& problem) {
    if (problem.rows() > 64) throw machine_error("the GPU fell off the bus");
  };
  EXPECT_EQ(error_of([&] { tuning.run(); }).what, "the GPU fell off the bus");
  EXPECT_EQ(tuning.tables, (std::vector<size_t>{1}));
}

TEST(Tune, ACellThatDoesNotFitIsSkipped) {
  Tuning tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(64), fake::small_cell(32)};
  tuning.backend.script.load = [](const Problem& problem) {
    if (problem.rows() > 64) throw OutOfMemory("needs 12.3 GB, 8 GB are free", 12'300'000'000);
  };
  const TunedTable table = tuning.run();
  ASSERT_EQ(table.entries.size(), 3U);
  EXPECT_EQ(table.entries[1].skipped, "out of memory: needs 12.3 GB, 8 GB are free");
  EXPECT_TRUE(lacks_memory(table.entries[1]));
  EXPECT_FALSE(lacks_memory(table.entries[0]));
  EXPECT_EQ(table.entries[1].measured, 0);
  EXPECT_EQ(table.entries[2].candidate, fake::best_of_small_space());
  EXPECT_EQ(tuning.notes, (std::vector<std::string>{}));
}

TEST(Tune, RandomDrawsWithoutListingTheSpace) {
  Tuning tuning;
  tuning.request.strategy = "random", tuning.request.max_candidates = 3, tuning.request.seed = 5;
  const std::vector<Candidate> drawn =
      draw(tuning.request.space, tuning.request.cells[0].shape, tuning.backend.device(), 3, 5).legal;
  EXPECT_EQ(drawn_candidates(tuning.request), 3);
  TuneRequest whole = tuning.request;
  whole.max_candidates = 0;
  EXPECT_EQ(drawn_candidates(whole), 0);
  whole.strategy = "exhaustive", whole.max_candidates = 3;
  EXPECT_EQ(drawn_candidates(whole), 0);
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.legal, 3);
  ASSERT_EQ(tuning.trials.size(), 3U);
  EXPECT_EQ(tuning.trials[0].candidate, tuning.fallback());
  for (size_t i = 1; i < 3; ++i)
    EXPECT_NE(std::find(drawn.begin(), drawn.end(), tuning.trials[i].candidate), drawn.end());
}

TEST(Tune, ACellWithoutACorrectCandidateSaysWhy) {
  Tuning tuning;
  tuning.backend.script.verify = [](const Contender& who) {
    return who.baseline.empty() ? fake::wrong() : fake::right();
  };
  const Entry entry = tuning.run_one();
  EXPECT_TRUE(holds(entry.skipped, "no candidate is right")) << entry.skipped;
  EXPECT_TRUE(holds(entry.skipped, "wrong_result: 7 of 2048 elements differ")) << entry.skipped;
  EXPECT_EQ(entry.measured, 49);
  EXPECT_EQ(entry.failed, 49);
}

TEST(Tune, ASpaceOfAnotherDeviceIsARequestError) {
  Tuning tuning;
  tuning.request.space = {.name = "mine", .variants = {{.variant = built_in().find("simt"), .values = {}}}};
  const Caught caught = error_of([&] { tuning.run(); });
  EXPECT_EQ(caught.exit, Exit::request);
  EXPECT_EQ(caught.what,
            "this machine has no GPU, or --device cpu was given; no variant of the space 'mine' runs on a cpu");
  tuning.request.strategy = "clever";
  EXPECT_EQ(error_of([&] { tuning.run(); }).exit, Exit::request);
  EXPECT_TRUE(tuning.backend.calls.empty());
}

// A run that is stopped at the first event of a kind after some trials.
template <typename At>
struct Stopped : Tuning {
  explicit Stopped(size_t after = 0) {
    also = [this, after](const Event& event) {
      if (std::holds_alternative<At>(event) && trials.size() >= after) stop = true;
    };
  }
};

TEST(TuneStop, TheTrialUnderWayIsFinishedAndAWinnerIsKept) {
  Stopped<TrialStarted> tuning(6);
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.trials.size(), 7U);
  EXPECT_EQ(entry.measured, 7);
  EXPECT_FALSE(entry.complete);
  EXPECT_TRUE(entry.candidate.variant);
  EXPECT_LE(entry.measurement.time.samples, kFewest);  // a hurried final
  EXPECT_EQ(tuning.tables, (std::vector<size_t>{1}));
}

TEST(TuneStop, BeforeTheFirstTrialThereIsNoEntry) {
  Tuning tuning;
  tuning.stop = true;
  EXPECT_TRUE(tuning.run().entries.empty());
  EXPECT_TRUE(tuning.backend.calls.empty());
  EXPECT_TRUE(Stopped<CellStarted>().run().entries.empty());
}

TEST(TuneStop, AFinalThatIsCutShortIsIncompleteAndMadeAgain) {
  Tuning tuning;
  tuning.request.final_rounds = 10000;
  tuning.backend.script.before = [&](const std::string& call, const Contender&) {
    if (call == "sample" && tuning.trials.size() == 49) tuning.stop = true;
  };
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.measured, 49);
  EXPECT_FALSE(entry.complete);
  EXPECT_LE(entry.measurement.time.samples, kFewest);
  tuning.before.decided[id(entry.cell)] = entry;
  EXPECT_EQ(decided_entry(tuning.request, tuning.before, entry.cell), nullptr);
}

TEST(TuneStop, LaterCellsAreNotBegun) {
  Stopped<TrialFinished> tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(64)};
  const Entry entry = tuning.run_one();
  EXPECT_EQ(entry.measured, 1);
  EXPECT_EQ(tuning.backend.loads, 1);
}

TEST(TuneStop, WithoutACorrectCandidateTheEntrySaysSo) {
  Stopped<TrialFinished> tuning;
  tuning.backend.script.verify = [](const Contender&) { return fake::wrong(); };
  const Entry entry = tuning.run_one();
  EXPECT_FALSE(entry.complete);
  EXPECT_TRUE(holds(entry.skipped, "no candidate is right"));
}

TEST(TuneBudget, EndsTheSearchButNotBeforeTheDefault) {
  Tuning tuning;
  tuning.backend.script.before = [](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(20);
  };
  tuning.request.time_budget = 0.1;
  const Entry entry = tuning.run_one();
  EXPECT_GE(entry.measured, 1);
  EXPECT_LT(entry.measured, 20);
  EXPECT_FALSE(entry.complete);
  EXPECT_EQ(tuning.trials.at(0).candidate, tuning.fallback());
}

TEST(TuneBudget, ASpentBudgetStillTriesTheDefaultOfTheFirstCellAlone) {
  Tuning tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(64)};
  tuning.backend.script.load = [](const Problem&) { sleep_ms(20); };
  tuning.request.time_budget = 1e-3;
  const TunedTable table = tuning.run();
  ASSERT_EQ(table.entries.size(), 1U);
  EXPECT_EQ(table.entries[0].measured, 1);
  EXPECT_EQ(table.entries[0].candidate, tuning.fallback());
  EXPECT_FALSE(table.entries[0].complete);
  EXPECT_EQ(tuning.backend.batches.at(0), 1U);  // nothing compiled that can't be tried
  ASSERT_EQ(tuning.notes.size(), 1U);
  EXPECT_TRUE(holds(tuning.notes[0], "1 of 2 cells are not begun")) << tuning.notes[0];
  EXPECT_TRUE(holds(tuning.notes[0], "--resume")) << tuning.notes[0];
}

TEST(TuneBudget, IsSharedOutOverTheCells) {
  Tuning tuning;
  tuning.request.cells = {fake::small_cell(16), fake::small_cell(32), fake::small_cell(64)};
  tuning.backend.script.before = [](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(10);
  };
  tuning.request.time_budget = 0.9;
  const TunedTable table = tuning.run();
  ASSERT_EQ(table.entries.size(), 3U);
  for (const Entry& entry : table.entries) {
    EXPECT_GT(entry.measured, 1);
    EXPECT_LT(entry.measured, 45);
    EXPECT_FALSE(entry.complete);
  }
}

// Its baseline has two speeds, for no other program's fault, and the faster one does not come again.
TEST(Tune, AnUndisturbedSmallCellDoesNotWaitForSeconds) {
  Tuning tuning;
  tuning.request.final_rounds = 40;
  tuning.request.final_looks = 8;
  int samples = 0;
  tuning.backend.script.before = [&](const std::string& call, const Contender& who) {
    if (call == "sample" && who.baseline == "loop" && ++samples > 5) tuning.backend.script.baselines[0].second = 500e-6;
  };
  const auto begin = std::chrono::steady_clock::now();
  tuning.run();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(Tune, AFinalWaitsAsLongAsRequested) {
  const auto begin = std::chrono::steady_clock::now();
  Tuning tuning({.waited = 0.5});
  tuning.request.final_wait = 0;
  tuning.run();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
  tuning.request.final_wait = 0.6;
  const auto second = std::chrono::steady_clock::now();
  tuning.run();
  EXPECT_GE(std::chrono::steady_clock::now() - second, std::chrono::milliseconds(600));
}

}  // namespace
}  // namespace moetune
