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

const std::string kCell = id(fake::small_cell());

struct Gone {};  // the process ends here

// A journal, and the runs that begin it and go on with it.
struct Log {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.jsonl";

  JournalContents read() const { return read_journal(path, built_in()); }
  void begin(Tuning& tuning) const { tuning.journal = create_journal(path, tuning.header()); }
  void go_on(Tuning& tuning) const {
    tuning.before = read();
    tuning.journal = reopen_journal(path);
  }

  // Runs until `trials` have finished, then ends as abruptly as a test can: out of the listener, in the next trial.
  void run_and_die(int trials, const std::string& strategy = "exhaustive", bool resume = false) const {
    Tuning tuning;
    tuning.request.strategy = strategy;
    resume ? go_on(tuning) : begin(tuning);
    int finished = 0;
    tuning.backend.script.before = [&](const std::string& call, const Contender&) {
      if (call == "verify" && finished++ == trials) throw Gone();
    };
    EXPECT_THROW(tuning.run(), Gone);
  }

  // How many candidates a run measures that goes on.
  size_t measured_by_resuming() const {
    Tuning tuning;
    tuning.request.strategy = "auto";
    go_on(tuning);
    tuning.run();
    return tuning.trials.size();
  }
};

TEST(Resume, SearchesNoFurtherWhereTheStrategyHadEnded) {
  const Log log;
  {
    Tuning tuning;
    tuning.request.strategy = "auto";
    tuning.request.max_candidates = 5;
    log.begin(tuning);
    tuning.run();
  }
  EXPECT_FALSE(log.read().searched.contains(kCell));  // the limit cut it off
  EXPECT_GT(log.measured_by_resuming(), 0U);
  EXPECT_TRUE(log.read().searched.contains(kCell));
  EXPECT_EQ(log.measured_by_resuming(), 0U);
}

TEST(Resume, RepeatsNoFinishedTrial) {
  for (const std::string strategy : {"exhaustive", "random"}) {
    const Log log;
    log.run_and_die(20, strategy);
    Tuning tuning;
    tuning.request.strategy = strategy;
    log.go_on(tuning);
    const JournalContents before = tuning.before;
    ASSERT_EQ(before.trials.at(kCell).size(), 20U);
    const Entry entry = tuning.run_one();
    EXPECT_EQ(tuning.resumed, 20);
    EXPECT_EQ(tuning.planned, 49);
    EXPECT_EQ(tuning.trials.size(), 29U);
    EXPECT_EQ(entry.measured, 49);
    for (const Trial& trial : before.trials.at(kCell))
      EXPECT_EQ(tuning.backend.count("verify " + text(trial.candidate)), 0) << text(trial.candidate);
    EXPECT_EQ(log.read().trials.at(kCell).size(), 49U);
    EXPECT_EQ(entry.candidate, fake::best_of_small_space());
  }
}

TEST(Resume, ADecidedCellIsKeptAndCostsNothing) {
  const Log log;
  Tuning first;
  log.begin(first);
  const Entry once = first.run_one();
  first.journal = {};  // as its process ends
  Tuning second;
  log.go_on(second);
  const Entry again = second.run_one();
  EXPECT_TRUE(second.backend.calls.empty());
  EXPECT_TRUE(second.events.empty());
  EXPECT_EQ(second.tables, std::vector<size_t>{1});
  EXPECT_EQ(to_json(again, first.backend.device()), to_json(once, first.backend.device()));
}

TEST(Resume, ACompleteJournalOfAnEarlierVersionNeedsTheFinalAlone) {
  const Log log;
  Tuning first;
  log.begin(first);
  const Entry once = first.run_one();
  first.journal = {};
  Tuning second;
  second.before = log.read();
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
  const Log log;
  const auto two_cells = [](Tuning& tuning) {
    tuning.request.cells.push_back(fake::small_cell());
    tuning.request.cells.back().tokens *= 2;
  };
  Tuning first;
  two_cells(first);
  log.begin(first);
  first.also = [&](const Event&) { first.stop = first.trials.size() >= 3; };
  EXPECT_FALSE(first.run_one().complete);
  first.journal = {};
  Tuning second;
  two_cells(second);
  log.go_on(second);
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
  const Log log;
  log.run_and_die(20);
  Tuning tuning;
  tuning.request.time_budget = 1e-9;
  log.go_on(tuning);
  EXPECT_FALSE(tuning.run_one().complete);
  EXPECT_EQ(tuning.trials.size(), 1U);
}

TEST(Resume, EveryTrialIsInTheJournalBeforeItsEvent) {
  const Log log;
  Tuning tuning;
  tuning.request.max_candidates = 3;
  log.begin(tuning);
  int started = 0, finished = 0;
  tuning.also = [&](const Event& event) {
    const JournalContents now = log.read();
    const size_t known = now.trials.contains(kCell) ? now.trials.at(kCell).size() : 0;
    if (std::holds_alternative<TrialStarted>(event)) ++started;
    if (std::holds_alternative<TrialFinished>(event)) ++finished;
    EXPECT_EQ(known, static_cast<size_t>(finished));
  };
  tuning.run();
  EXPECT_EQ(started, 3);
  EXPECT_EQ(finished, 3);
}

TEST(Resume, AStartedRecordIsOnDiskWhileTheCandidateRuns) {
  const Log log;
  Tuning tuning;
  tuning.request.max_candidates = 1;
  log.begin(tuning);
  bool seen = false;
  tuning.backend.script.before = [&](const std::string& call, const Contender& who) {
    if (call != "verify" || !who.baseline.empty()) return;
    seen = log.read().unfinished.at(kCell).at(text(who.candidate)) == 1;
  };
  tuning.run();
  EXPECT_TRUE(seen);
  EXPECT_TRUE(log.read().unfinished.empty());
}

TEST(Resume, CompileErrorsAreKnownToo) {
  const Log log;
  const auto spills = [](const Candidate& c) {
    if (find_value(c, "block_m") != 16) return CompileResult{};
    return CompileResult{.status = Status::spills, .reason = "24 bytes"};
  };
  Tuning first({.compile = spills});
  log.begin(first);
  first.run();
  Tuning second({.compile = spills});
  second.before = log.read();
  second.before.decided.clear();  // as where it ended before the final
  const Entry entry = second.run_one();
  EXPECT_EQ(second.resumed, 49);
  EXPECT_EQ(entry.failed, 12);
}

TEST(Resume, ACandidateThatWasUnderWayOnceIsTriedAgain) {
  const Log log;
  log.run_and_die(5);
  Tuning tuning;
  log.go_on(tuning);
  ASSERT_EQ(tuning.before.unfinished.at(kCell).size(), 1U);
  const std::string culprit = tuning.before.unfinished.at(kCell).begin()->first;
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.backend.count("verify " + culprit), 1);
  EXPECT_EQ(entry.failed, 0);
}

TEST(Resume, ACandidateThatWasUnderWayTwiceIsTheCulprit) {
  const Log log;
  log.run_and_die(5);
  log.run_and_die(0, "exhaustive", true);
  Tuning tuning;
  log.go_on(tuning);
  const auto [culprit, times] = *tuning.before.unfinished.at(kCell).begin();
  ASSERT_EQ(times, 2);
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.backend.count("verify " + culprit), 0);
  EXPECT_EQ(entry.failed, 1);
  ASSERT_FALSE(tuning.trials.empty());
  EXPECT_EQ(text(tuning.trials[0].candidate), culprit);
  EXPECT_EQ(tuning.trials[0].status, Status::crashed);
  EXPECT_EQ(tuning.trials[0].reason, "was under way when two earlier runs ended");
  EXPECT_TRUE(log.read().unfinished.empty());  // recorded: a third run knows
}

TEST(Resume, MaxCandidatesCountsWhatIsKnown) {
  const Log log;
  log.run_and_die(10);
  Tuning tuning;
  tuning.before = log.read();
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
  tuning.before.trials[kCell] = {stranger};
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.resumed, 0);
  EXPECT_EQ(entry.candidate, fake::best_of_small_space());
}

TEST(Resume, ATrialThatIsInTheJournalTwiceCountsOnce) {
  const Log log;
  log.run_and_die(5);
  Tuning tuning;
  tuning.before = log.read();
  auto& trials = tuning.before.trials.at(kCell);
  trials.push_back(trials.front());
  const Entry entry = tuning.run_one();
  EXPECT_EQ(tuning.resumed, 5);
  EXPECT_EQ(entry.measured, 49);
}

}  // namespace
}  // namespace moetune
