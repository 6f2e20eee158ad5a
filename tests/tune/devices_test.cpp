// One run over several devices: who tunes what, what a lost device leaves, and one journal and table for all.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "backend/worker/worker.h"
#include "base/system/file.h"
#include "built_in.h"
#include "error_of.h"
#include "record/open_journal.h"
#include "sleep_ms.h"
#include "temporary_folder.h"
#include "tune/fake_backend.h"
#include "tune/run.h"
#include "tune/tuner.h"

namespace moetune {
namespace {

using fake::cpu;
using fake::FakeBackend;

TEST(CellQueue, HandsOutEachCellOnceInTheGivenOrder) {
  CellQueue queue({2, 1, 0});
  EXPECT_EQ(queue.next(), 2u);
  EXPECT_EQ(queue.next(), 1u);
  EXPECT_EQ(queue.left(), 1u);
  queue.give_back(1);
  EXPECT_EQ(queue.left(), 2u);
  EXPECT_EQ(queue.next(), 1u);
  EXPECT_EQ(queue.next(), 0u);
  for (int i = 0; i < 3; ++i) queue.done();
  EXPECT_EQ(queue.next(), std::nullopt);
  EXPECT_EQ(CellQueue({}).next(), std::nullopt);
}

TEST(CellQueue, AWaitingThreadGetsACellThatIsReturned) {
  CellQueue queue({0});
  ASSERT_EQ(queue.next(), 0u);
  std::optional<size_t> got;
  std::thread other([&] { got = queue.next(); });
  sleep_ms(20);
  queue.give_back(0);
  other.join();
  EXPECT_EQ(got, 0u);
}

TEST(CellQueue, TheLastCellOrTheEndWakesWaitingThreads) {
  for (const bool end : {false, true}) {
    CellQueue queue({0, 1});
    ASSERT_EQ(queue.next(), 0u);
    if (!end) {
      ASSERT_EQ(queue.next(), 1u);
      queue.done();
    }
    std::optional<size_t> got = 7;
    if (end) queue.end();
    std::thread other([&] { got = queue.next(); });
    sleep_ms(20);
    if (!end) queue.done();
    other.join();
    EXPECT_EQ(got, std::nullopt);
  }
}

using Hook = std::function<void(const std::string&, const Contender&)>;

std::unique_ptr<Backend> device(Hook before = {}) {
  fake::Script script;
  script.before = std::move(before);
  return std::make_unique<FakeBackend>(script);
}

// So slow that no device can do all the work before the other begins.
Hook slow() {
  return [](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(1);
  };
}

// Works for some calls and for none after them.
Hook lost_after(int calls) {
  return [left = calls](const std::string& call, const Contender&) mutable {
    if (call == "verify") sleep_ms(1);
    if (left-- <= 0) throw machine_error("the driver has lost the GPU");
  };
}

std::vector<std::unique_ptr<Backend>> pair(std::unique_ptr<Backend> a, std::unique_ptr<Backend> b) {
  std::vector<std::unique_ptr<Backend>> both;
  both.push_back(std::move(a));
  both.push_back(std::move(b));
  return both;
}

// A run over fakes, with what it says.
struct Team {
  std::vector<std::unique_ptr<Backend>> devices;
  TuneRequest request;
  Journal journal;
  JournalContents before;
  std::atomic<bool> stop{false};
  std::function<void(const TunedTable&)> after_cell;
  std::function<void(const Event&)> also;
  std::vector<std::string> notes;
  std::map<size_t, int> trials, cells;  // by device
  std::atomic<int> inside{0};
  bool overlapped = false;

  explicit Team(std::vector<std::unique_ptr<Backend>> all = pair(device(slow()), device(slow())), int count = 6)
      : devices(std::move(all)) {
    for (int i = 0; i < count; ++i) request.cells.push_back(fake::small_cell(16 + i));
    request.space = fake::small_space();
    request.block_seconds = 1e-3;
  }

  void begin(const TemporaryFolder& folder) {
    journal = create_journal(folder.path() / "j", {.cells = request.cells,
                                                   .device = devices[0]->device(),
                                                   .environment = devices[0]->environment(),
                                                   .space = request.space.name,
                                                   .strategy = request.strategy,
                                                   .seed = request.seed});
  }
  void go_on(const TemporaryFolder& folder) {
    before = read_journal(folder.path() / "j", built_in());
    journal = reopen_journal(folder.path() / "j");
  }

  TunedTable run() {
    std::vector<Backend*> pointers;
    for (const auto& device : devices) pointers.push_back(device.get());
    return tune(
        request, pointers, journal, before, [this](const Event& event) { hear(event); }, stop, after_cell);
  }

  void hear(const Event& event) {
    overlapped = overlapped || ++inside > 1;
    if (const auto* trial = std::get_if<TrialFinished>(&event)) ++trials[trial->device];
    if (const auto* cell = std::get_if<CellFinished>(&event)) ++cells[cell->device];
    if (const auto* note = std::get_if<Note>(&event)) notes.push_back(note->text);
    if (also) also(event);
    --inside;
  }
};

Json entries_json(const TunedTable& table) { return to_json(table)["entries"]; }

// What one device makes of the same request.
Json alone(const TuneRequest& request) {
  std::vector<std::unique_ptr<Backend>> one;
  one.push_back(device());
  Team team(std::move(one));
  team.request = request;
  return entries_json(team.run());
}

// Every candidate once in each cell, each of them right.
void expect_each_trial_once(const JournalContents& contents, const Team& team) {
  for (const Cell& cell : team.request.cells) {
    std::set<Candidate> seen;
    for (const Trial& trial : contents.trials.at(id(cell))) {
      EXPECT_TRUE(seen.insert(trial.candidate).second) << text(trial.candidate);
      EXPECT_EQ(trial.status, Status::ok) << trial.reason;
    }
    EXPECT_EQ(seen.size(), 49u);
  }
}

TEST(Devices, ShareTheCellsAndTheTableIsThatOfOne) {
  const TemporaryFolder folder;
  Team team;
  team.begin(folder);
  std::vector<size_t> tables;
  team.after_cell = [&](const TunedTable& table) { tables.push_back(table.entries.size()); };
  const TunedTable table = team.run();
  EXPECT_EQ(entries_json(table), alone(team.request));
  EXPECT_EQ(tables, (std::vector<size_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_GT(team.cells[0], 0);
  EXPECT_GT(team.cells[1], 0);
  EXPECT_EQ(team.cells[0] + team.cells[1], 6);
  EXPECT_EQ(team.trials[0] + team.trials[1], 6 * 49);
  EXPECT_FALSE(team.overlapped);
  EXPECT_TRUE(team.notes.empty());
  expect_each_trial_once(read_journal(folder.path() / "j", built_in()), team);
}

TEST(Devices, AResumedRunRepeatsNothingOnAnyDevice) {
  const TemporaryFolder folder;
  {
    Team team;
    team.begin(folder);
    int finished = 0;
    team.also = [&](const Event& event) {
      if (std::get_if<TrialFinished>(&event) && ++finished == 120) team.stop = true;
    };
    EXPECT_LT(team.run().entries.size(), 6u);
  }
  Team team;
  team.go_on(folder);
  EXPECT_EQ(entries_json(team.run()), alone(team.request));
  EXPECT_LT(team.trials[0] + team.trials[1], 6 * 49 - 100);
  expect_each_trial_once(read_journal(folder.path() / "j", built_in()), team);
}

TEST(Devices, TheWorkOfALostDeviceIsDoneByTheOthersOnce) {
  for (const int calls : {0, 1, 30, 150}) {
    const TemporaryFolder folder;
    Team team(pair(device(slow()), device(lost_after(calls))));
    team.begin(folder);
    EXPECT_EQ(entries_json(team.run()), alone(team.request)) << calls;
    ASSERT_EQ(team.notes.size(), 1u);
    EXPECT_EQ(team.notes[0],
              "fake (fake) is lost, and the other devices go on with its cell: the driver has lost the GPU");
    expect_each_trial_once(read_journal(folder.path() / "j", built_in()), team);
  }
}

std::unique_ptr<Backend> device_that_loads(std::function<void(const Problem&)> load) {
  fake::Script script;
  script.before = slow();
  script.load = std::move(load);
  return std::make_unique<FakeBackend>(script);
}

TEST(Devices, WithoutMemoryForTwoCellsOneWorkerDoesAll) {
  std::atomic<int> holder = -1;
  const auto worker = [&](int self) {
    return device_that_loads([&, self](const Problem&) {
      int nobody = -1;
      if (!holder.compare_exchange_strong(nobody, self) && holder != self) throw OutOfMemory("it is taken", 7);
    });
  };
  Team team(pair(worker(0), worker(1)));
  EXPECT_EQ(entries_json(team.run()), alone(team.request));
  EXPECT_EQ(team.cells.size(), 1u);
  ASSERT_EQ(team.notes.size(), 1u);
  EXPECT_EQ(team.notes[0], "fake (fake) has no room for so many cells at a time: it is taken");
}

TEST(Devices, ACellThatFitsOnNoDeviceIsSkipped) {
  const auto lacking = [](const Problem& problem) {
    if (problem.routing.tokens == 17) throw OutOfMemory("too large", 7);
  };
  Team team(pair(device_that_loads(lacking), device_that_loads(lacking)));
  const TunedTable table = team.run();
  ASSERT_EQ(table.entries.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(lacks_memory(table.entries[i]), i == 1) << table.entries[i].skipped;
  EXPECT_EQ(team.notes.size(), 1u);
}

TEST(Devices, TheFirstMayBeLostTooAndWaitingOnesGoOn) {
  // Slow enough for the first to take a cell as well; it is lost while the second works on its own, or waits.
  Team team(pair(device(lost_after(120)), device(slow())), 2);
  EXPECT_EQ(entries_json(team.run()), alone(team.request));
  EXPECT_EQ(team.cells[1], 2);
  EXPECT_EQ(team.notes.size(), 1u);
}

TEST(Devices, TheErrorOfTheLastDeviceEndsTheRunWhichCanBeResumed) {
  const TemporaryFolder folder;
  {
    Team team(pair(device(lost_after(40)), device(lost_after(60))));
    team.begin(folder);
    const Caught caught = error_of([&] { team.run(); });
    EXPECT_EQ(caught.exit, Exit::machine);
    EXPECT_EQ(caught.what, "the driver has lost the GPU");
    EXPECT_EQ(team.notes.size(), 1u);
  }
  Team team;
  team.go_on(folder);
  EXPECT_EQ(entries_json(team.run()), alone(team.request));
  expect_each_trial_once(read_journal(folder.path() / "j", built_in()), team);
}

TEST(Devices, FaultsThatCameJustBeforeADeviceWasLostAreTriedAgain) {
  int calls = 0;
  const auto dying = [&](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(1);
    if (++calls > 46) throw machine_error("lost");
    if (calls > 40) throw CandidateFault(Status::crashed, "the worker died");
  };
  Team team(pair(device(slow()), device(dying)));
  const TunedTable table = team.run();
  for (const Entry& entry : table.entries) EXPECT_EQ(entry.failed, 0) << id(entry.cell);
  EXPECT_EQ(entries_json(table), alone(team.request));
}

TEST(Devices, ACandidateThatWasUnderWayWhenTwoWereLostIsTakenForTheReason) {
  const auto kills = [](const std::string& call, const Contender& contender) {
    if (call == "verify") sleep_ms(1);
    if (contender.candidate == cpu(24, 64)) throw machine_error("lost");
  };
  std::vector<std::unique_ptr<Backend>> three = pair(device(kills), device(kills));
  three.push_back(device(kills));
  Team team(std::move(three), 1);
  const TunedTable table = team.run();
  ASSERT_EQ(table.entries.size(), 1u);
  EXPECT_EQ(table.entries[0].failed, 1);
  EXPECT_EQ(table.entries[0].candidate, fake::best_of_small_space());
  EXPECT_EQ(team.notes.size(), 1u);  // the same note appears once
}

TEST(Devices, AFailureOutsideTheDevicesEndsTheRun) {
  Team team;
  team.after_cell = [](const TunedTable&) { throw machine_error("the disk is full"); };
  EXPECT_EQ(error_of([&] { team.run(); }).what, "the disk is full");
  EXPECT_TRUE(team.notes.empty());  // nobody is retired for it
  EXPECT_EQ(team.cells[0] + team.cells[1], 1);

  Team bug(pair(device(slow()),
                device([](const std::string&, const Contender&) { throw Error(Exit::bug, "an invariant broke"); })));
  EXPECT_EQ(error_of([&] { bug.run(); }).exit, Exit::bug);
}

TEST(Devices, AStopEndsAllAfterTheirTrials) {
  Team team;
  team.also = [&](const Event& event) {
    if (std::get_if<TrialFinished>(&event)) team.stop = true;
  };
  const TunedTable table = team.run();
  EXPECT_LE(table.entries.size(), 2u);
  EXPECT_GE(table.entries.size(), 1u);
  EXPECT_LE(team.trials[0], 2);
  EXPECT_LE(team.trials[1], 2);
  for (const Entry& entry : table.entries) EXPECT_FALSE(entry.complete);
}

TEST(Devices, ASpentBudgetIsNotedOnce) {
  const auto slower = [](const std::string& call, const Contender&) {
    if (call == "verify") sleep_ms(30);
  };
  Team team(pair(device(slower), device(slower)));
  team.request.time_budget = 0.02;
  const TunedTable table = team.run();
  EXPECT_LT(table.entries.size(), 6u);
  ASSERT_EQ(team.notes.size(), 1u);
  EXPECT_TRUE(team.notes[0].starts_with("the time budget is spent: ")) << team.notes[0];
}

std::unique_ptr<Backend> worker(const std::string& faults) {
  WorkerOptions options;
  options.command = {MOETUNE_TEST_WORKER, "serve"};
  options.device = "fake;" + faults;
  return make_worker_backend(options);
}

TEST(Devices, AWorkerProcessThatIsLostForGoodIsRetired) {
  const TemporaryFolder folder;
  const std::string gone = (folder.path() / "gone").string();
  Team team(pair(worker("log=/dev/null"), worker("lost=" + gone)));
  team.begin(folder);
  team.also = [&](const Event& event) {
    const auto* trial = std::get_if<TrialFinished>(&event);
    if (trial && trial->device == 1 && trial->done == 10) std::ofstream(gone) << "gone";
  };
  EXPECT_EQ(entries_json(team.run()), alone(team.request));
  ASSERT_EQ(team.notes.size(), 1u);
  EXPECT_TRUE(team.notes[0].ends_with("no such GPU")) << team.notes[0];
  JournalContents contents = read_journal(folder.path() / "j", built_in());
  int faults = 0;
  for (const auto& [cell, trials] : contents.trials)
    for (const Trial& trial : trials) faults += trial.status == Status::ok ? 0 : 1;
  EXPECT_EQ(faults, 1);  // the trial that was under way, which another device then tried
  EXPECT_TRUE(contents.unfinished.empty());
}

TEST(Devices, AWorkerThatDiesOnceCostsOneTrialAndNoDevice) {
  const TemporaryFolder folder;
  Team team(pair(worker("log=/dev/null"), worker("crash-once=" + (folder.path() / "once").string())));
  const TunedTable table = team.run();
  EXPECT_TRUE(team.notes.empty());
  int64_t failed = 0;
  for (const Entry& entry : table.entries) failed += entry.failed;
  EXPECT_EQ(failed, 1);
  EXPECT_GT(team.cells[1], 0);
}

}  // namespace
}  // namespace moetune
