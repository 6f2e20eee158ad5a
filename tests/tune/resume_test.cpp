// Resuming from a journal: nothing finished is repeated, and a candidate that ended two runs isn't tried again.
#include <gtest/gtest.h>

#include "built_in.h"
#include "record/open_journal.h"
#include "temporary_folder.h"
#include "tune/tuning.h"

namespace moetune {
namespace {

using fake::cpu;
using fake::Tuning;

JournalHeader header_of(Tuning& tuning) {
  return {.cells = tuning.request.cells,
          .device = tuning.backend.device(),
          .environment = tuning.backend.environment(),
          .space = tuning.request.space.name,
          .strategy = tuning.request.strategy,
          .seed = tuning.request.seed};
}

struct Gone {};  // the process ends here

// Runs until `trials` have finished, then ends as abruptly as a test can: out of the listener, during the next trial.
void run_and_die(const std::filesystem::path& path, int trials, const std::string& strategy = "exhaustive",
                 bool resume = false) {
  Tuning tuning;
  tuning.request.strategy = strategy;
  if (resume) tuning.before = read_journal(path, built_in());
  tuning.journal = resume ? reopen_journal(path) : create_journal(path, header_of(tuning));
  int finished = 0;
  tuning.backend.script.before = [&](const std::string& call, const Contender&) {
    if (call == "verify" && finished++ == trials) throw Gone();
  };
  EXPECT_THROW(tuning.run(), Gone);
}

// How many candidates a run measures that goes on with the journal.
size_t measured_by_resuming(const std::filesystem::path& path, int64_t max_candidates = 0) {
  Tuning tuning;
  tuning.request.strategy = "auto";
  tuning.request.max_candidates = max_candidates;
  tuning.before = read_journal(path, built_in());
  tuning.journal = reopen_journal(path);
  tuning.run();
  return tuning.trials.size();
}

TEST(Resume, SearchesNoFurtherWhereTheStrategyHadEnded) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  {
    Tuning tuning;
    tuning.request.strategy = "auto";
    tuning.request.max_candidates = 5;
    tuning.journal = create_journal(path, header_of(tuning));
    tuning.run();
  }
  EXPECT_FALSE(read_journal(path, built_in()).searched.contains(id(fake::small_cell())));  // the limit cut it off
  EXPECT_GT(measured_by_resuming(path), 0U);
  EXPECT_TRUE(read_journal(path, built_in()).searched.contains(id(fake::small_cell())));
  EXPECT_EQ(measured_by_resuming(path), 0U);
}

TEST(Resume, RepeatsNoFinishedTrial) {
  for (const std::string strategy : {"exhaustive", "random"}) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "run.jsonl";
    run_and_die(path, 20, strategy);
    const JournalContents before = read_journal(path, built_in());
    ASSERT_EQ(before.trials.at(id(fake::small_cell())).size(), 20U);

    Tuning tuning;
    tuning.request.strategy = strategy;
    tuning.before = before;
    tuning.journal = reopen_journal(path);
    const Entry entry = tuning.run_one();
    EXPECT_EQ(tuning.resumed, 20);
    EXPECT_EQ(tuning.planned, 49);
    EXPECT_EQ(tuning.trials.size(), 29U);
    EXPECT_EQ(entry.measured, 49);
    for (const Trial& trial : before.trials.at(id(fake::small_cell())))
      EXPECT_EQ(tuning.backend.count("verify " + text(trial.candidate)), 0) << text(trial.candidate);
    EXPECT_EQ(read_journal(path, built_in()).trials.at(id(fake::small_cell())).size(), 49U);
    EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  }
}

TEST(Resume, ADecidedCellIsKeptAndCostsNothing) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  Tuning first;
  first.journal = create_journal(path, header_of(first));
  const Entry once = first.run_one();
  first.journal = {};  // as its process ends
  Tuning second;
  second.before = read_journal(path, built_in());
  second.journal = reopen_journal(path);
  const Entry again = second.run_one();
  EXPECT_TRUE(second.backend.calls.empty());
  EXPECT_TRUE(second.events.empty());
  EXPECT_EQ(second.tables, std::vector<size_t>{1});
  EXPECT_EQ(to_json(again, first.backend.device()), to_json(once, first.backend.device()));
}

TEST(Resume, ACompleteJournalOfAnEarlierVersionNeedsTheFinalAlone) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  Tuning first;
  first.journal = create_journal(path, header_of(first));
  const Entry once = first.run_one();
  first.journal = {};
  Tuning second;
  second.before = read_journal(path, built_in());
  second.before.decided.clear();  // which it lacks
  const Entry again = second.run_one();
  EXPECT_EQ(second.trials.size(), 0U);
  EXPECT_GT(second.backend.calls.size(), 0U);
  EXPECT_EQ(again.candidate, once.candidate);
  EXPECT_EQ(again.verdict.elements, once.verdict.elements);
  EXPECT_EQ(again.measured, 49);
  EXPECT_TRUE(again.complete);
}

TEST(Resume, EntriesOfCutSearchesStayUntilTheirCellIsDecidedAgain) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const auto two_cells = [](Tuning& tuning) {
    tuning.request.cells.push_back(fake::small_cell());
    tuning.request.cells.back().tokens *= 2;
  };
  Tuning first;
  two_cells(first);
  first.journal = create_journal(path, header_of(first));
  first.also = [&](const Event&) { first.stop = first.trials.size() >= 3; };
  EXPECT_FALSE(first.run_one().complete);
  first.journal = {};
  Tuning second;
  two_cells(second);
  second.before = read_journal(path, built_in());
  second.journal = reopen_journal(path);
  std::vector<size_t> begun;
  second.also = [&](const Event& event) {
    if (const auto* cell = std::get_if<CellStarted>(&event)) begun.push_back(cell->index);
  };
  const TunedTable table = second.run();
  EXPECT_EQ(begun, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(second.tables, (std::vector<size_t>{1, 2, 2}));
  EXPECT_EQ(second.trials.size(), 2U * 49 - 3);
  ASSERT_EQ(table.entries.size(), 2U);
  for (const Entry& entry : table.entries) EXPECT_TRUE(entry.complete);
}

// Without that, a run whose budget is spent by what was measured before would never end.
TEST(Resume, ASpentBudgetAllowsATrialOfTheFirstCell) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  run_and_die(path, 20);
  Tuning tuning;
  tuning.request.time_budget = 1e-9;
  tuning.before = read_journal(path, built_in());
  tuning.journal = reopen_journal(path);
  EXPECT_FALSE(tuning.run_one().complete);
  EXPECT_EQ(tuning.trials.size(), 1U);
}

TEST(Resume, EveryTrialIsInTheJournalBeforeItsEvent) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  Tuning tuning;
  tuning.request.max_candidates = 3;
  tuning.journal = create_journal(path, header_of(tuning));
  int started = 0, finished = 0;
  tuning.also = [&](const Event& event) {
    const JournalContents now = read_journal(path, built_in());
    const std::string cell = id(fake::small_cell());
    const size_t known = now.trials.contains(cell) ? now.trials.at(cell).size() : 0;
    if (std::holds_alternative<TrialStarted>(event)) ++started;
    if (std::holds_alternative<TrialFinished>(event)) ++finished;
    EXPECT_EQ(known, static_cast<size_t>(finished));
  };
  tuning.run();
  EXPECT_EQ(started, 3);
  EXPECT_EQ(finished, 3);
}

TEST(Resume, AStartedRecordIsOnDiskWhileTheCandidateRuns) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  Tuning tuning;
  tuning.request.max_candidates = 1;
  tuning.journal = create_journal(path, header_of(tuning));
  bool seen = false;
  tuning.backend.script.before = [&](const std::string& call, const Contender& who) {
    if (call != "verify" || !who.baseline.empty()) return;
    seen = read_journal(path, built_in()).unfinished.at(id(fake::small_cell())).at(text(who.candidate)) == 1;
  };
  tuning.run();
  EXPECT_TRUE(seen);
  EXPECT_TRUE(read_journal(path, built_in()).unfinished.empty());
}

TEST(Resume, CompileErrorsAreKnownToo) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const auto spills = [](const Candidate& c) {
    if (find_value(c, "block_m") != 16) return CompileResult{};
    return CompileResult{.status = Status::spills, .reason = "24 bytes"};
  };
  Tuning first({.compile = spills});
  first.journal = create_journal(path, header_of(first));
  first.run();
  Tuning second({.compile = spills});
  second.before = read_journal(path, built_in());
  second.before.decided.clear();  // as where it ended before the final
  const Entry entry = second.run_one();
  EXPECT_EQ(second.resumed, 49);
  EXPECT_EQ(entry.failed, 12);
}

TEST(Resume, ACandidateThatWasUnderWayOnceIsTriedAgain) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  run_and_die(path, 5);
  Tuning tuning;
  tuning.before = read_journal(path, built_in());
  tuning.journal = reopen_journal(path);
  ASSERT_EQ(tuning.before.unfinished.at(id(fake::small_cell())).size(), 1U);
  const std::string culprit = tuning.before.unfinished.at(id(fake::small_cell())).begin()->first;
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.backend.count("verify " + culprit), 1);
  EXPECT_EQ(entry.failed, 0);
}

TEST(Resume, ACandidateThatWasUnderWayTwiceIsTheCulprit) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  run_and_die(path, 5);
  run_and_die(path, 0, "exhaustive", true);
  Tuning tuning;
  tuning.before = read_journal(path, built_in());
  tuning.journal = reopen_journal(path);
  const auto [culprit, times] = *tuning.before.unfinished.at(id(fake::small_cell())).begin();
  ASSERT_EQ(times, 2);
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.backend.count("verify " + culprit), 0);
  EXPECT_EQ(entry.failed, 1);
  ASSERT_FALSE(tuning.trials.empty());
  EXPECT_EQ(text(tuning.trials[0].candidate), culprit);
  EXPECT_EQ(tuning.trials[0].status, Status::crashed);
  EXPECT_EQ(tuning.trials[0].reason, "was under way when two earlier runs ended");
  EXPECT_TRUE(read_journal(path, built_in()).unfinished.empty());  // recorded: a third run knows
}

TEST(Resume, MaxCandidatesCountsWhatIsKnown) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  run_and_die(path, 10);
  Tuning tuning;
  tuning.before = read_journal(path, built_in());
  tuning.request.max_candidates = 12;
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.trials.size(), 2U);
  EXPECT_EQ(entry.measured, 12);
}

TEST(Resume, TrialsOutsideTheSpaceAreForgotten) {
  Tuning tuning;
  Trial stranger;
  stranger.candidate = cpu(192);
  stranger.measurement = {.time = {1e-9, 1e-9, 1e-9, 5}, .launches = 50, .clock_mhz = 0};
  stranger.verdict = fake::right();
  tuning.before.trials[id(fake::small_cell())] = {stranger};
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.resumed, 0);
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
}

TEST(Resume, ATrialThatIsInTheJournalTwiceCountsOnce) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  run_and_die(path, 5);
  Tuning tuning;
  tuning.before = read_journal(path, built_in());
  auto& trials = tuning.before.trials.at(id(fake::small_cell()));
  trials.push_back(trials.front());
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.resumed, 5);
  EXPECT_EQ(entry.measured, 49);
}

}  // namespace
}  // namespace moetune
