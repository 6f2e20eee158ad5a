// Contenders measured in each other's cells, over the fake backend: who takes part, who drops out, what is chosen.
#include "tune/contest.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "tune/fake_backend.h"
#include "tune/tuning.h"
#include "workload/product/product.h"

namespace moetune {
namespace {

using fake::cpu;
using fake::FakeBackend;
using fake::small_cell;

const Candidate kEven = cpu(16), kSkewed = cpu(24), kBoth = cpu(32), kDefault = cpu(96);

Entry winner(const Cell& cell, const Candidate& candidate, std::vector<Candidate> ties = {}) {
  Entry entry;
  entry.cell = cell;
  const Problem problem = make_problem(cell);
  entry.m_sizes = problem.routing.m_sizes;
  entry.figures = figures(problem.routing);
  entry.candidate = candidate;
  entry.measurement = {.time = {1e-4, 1e-4, 1e-4, 11}};
  entry.rivals.emplace_back();
  entry.rivals[0].name = "default", entry.rivals[0].candidate = kDefault;
  entry.ties = std::move(ties);
  return entry;
}

// A layer whose balanced rows have kEven as their winner, whose other rows have kSkewed; kBoth ties with both.
struct Choosing {
  FakeBackend backend;
  TunedTable table;
  ContestRequest request = {.rounds = 5};
  std::atomic<bool> stop{false};
  Problem loaded;
  std::vector<std::string> notes;
  std::vector<std::string> begun;  // "t16/uniform 4"

  Choosing() {
    backend.script.load = [this](const Problem& problem) { loaded = problem; };
    backend.script.seconds = [this](const Candidate& candidate) { return seconds(candidate); };
    table.device = backend.device();
    for (const char* routing : {"balanced", "single"}) add(16, routing);
  }

  void add(int64_t tokens, const std::string& routing) {
    table.entries.push_back(winner(small_cell(tokens, routing), routing == "balanced" ? kEven : kSkewed, {kBoth}));
  }

  bool is_even() const { return loaded.active_experts() == static_cast<int64_t>(loaded.routing.m_sizes.size()); }

  double seconds(const Candidate& candidate) const {
    if (candidate == kBoth) return 102e-6;
    if (candidate == kDefault) return 180e-6;
    return (candidate == kEven) == is_even() ? 100e-6 : 130e-6;
  }

  std::vector<RobustChoice> run() {
    const ContestListener listener{.begins =
                                       [this](const Cell& cell, size_t contenders) {
                                         begun.push_back("t" + std::to_string(cell.tokens) + "/" + text(cell.routing) +
                                                         " " + std::to_string(contenders));
                                       },
                                   .note = [this](const std::string& note) { notes.push_back(note); }};
    return measure_choices(table, backend, request, listener, stop);
  }

  RobustChoice one() {
    const std::vector<RobustChoice> choices = run();
    if (choices.size() != 1) throw std::runtime_error("expected one choice");
    return choices[0];
  }
};

TEST(Choose, TheCandidateThatIsGoodEverywhere) {
  Choosing choosing;
  const RobustChoice choice = choosing.one();
  EXPECT_EQ(choice.candidate(), kBoth);
  EXPECT_EQ(choice.contenders.size(), 4u);
  EXPECT_NEAR(worst_regret(choice, choice.chosen), 0.02, 1e-9);
  EXPECT_NEAR(regret(choice, 0, 0) + regret(choice, 0, 1), 0.3, 1e-9);
  EXPECT_EQ(text(choice.tokens), "all");
  EXPECT_EQ(choosing.begun, (std::vector<std::string>{"t16/balanced 4", "t16/single 4"}));
  EXPECT_TRUE(choosing.notes.empty());
}

TEST(Choose, EachContenderIsVerifiedInEachCell) {
  Choosing choosing;
  choosing.run();
  for (const Candidate& one : {kEven, kSkewed, kBoth, kDefault})
    EXPECT_EQ(choosing.backend.count("verify " + text(one)), 2) << text(one);
  EXPECT_EQ(choosing.backend.count("sample " + text(kBoth)), 2 * choosing.request.rounds);
  EXPECT_EQ(choosing.backend.batches, std::vector<size_t>{4});  // compiled once, before anything is timed
}

TEST(Choose, ContendersMayBeNamed) {
  Choosing choosing;
  choosing.table.entries.pop_back();  // a single cell has a contest too
  choosing.request.rule = Rule::layer;
  choosing.request.contenders = [](const Entries& entries) {
    EXPECT_EQ(entries.size(), 1u);
    return std::vector<Candidate>{kSkewed, kDefault};
  };
  const RobustChoice choice = choosing.one();
  EXPECT_EQ(choice.contenders.size(), 2u);
  EXPECT_EQ(choice.candidate(), kSkewed);
}

TEST(Choose, OperandsAreMadeAnewForEachLook) {
  Choosing choosing;
  choosing.request.rounds = 40;
  choosing.request.looks = 8;
  choosing.run();
  EXPECT_EQ(choosing.backend.loads, 16);
  EXPECT_EQ(choosing.backend.count("sample " + text(kBoth)), 80);
}

TEST(Choose, AContenderWithAWrongResultInOneCellDropsOut) {
  Choosing choosing;
  choosing.backend.script.verify = [&](const Contender& contender) {
    return contender.candidate == kBoth && !choosing.is_even() ? fake::wrong() : fake::right();
  };
  const RobustChoice choice = choosing.one();
  EXPECT_EQ(choice.contenders.size(), 3u);
  EXPECT_NE(choice.candidate(), kBoth);
  ASSERT_EQ(choice.left_out.size(), 1u);
  EXPECT_EQ(choice.left_out[0].candidate, kBoth);
  EXPECT_EQ(choice.left_out[0].cell, id(choosing.table.entries[1].cell));
  ASSERT_EQ(choosing.notes.size(), 1u);
  EXPECT_EQ(choosing.notes[0], text(kBoth) + " is left out of the choice: in " + id(choosing.table.entries[1].cell) +
                                   ": its result is wrong: 7 of 2048 elements differ");
}

TEST(Choose, AContenderThatFailsTwiceDropsOut) {
  for (const int times : {1, 2}) {
    Choosing choosing;
    int left = times;
    choosing.backend.script.before = [&](const std::string& call, const Contender& contender) {
      if (call == "sample" && contender.candidate == kBoth && left > 0) {
        --left;
        throw CandidateFault(Status::crashed, "the worker was killed by signal 11");
      }
    };
    const RobustChoice choice = choosing.one();
    EXPECT_EQ(choice.contenders.size(), times == 1 ? 4u : 3u);
    EXPECT_EQ(choosing.notes.size(), times == 1 ? 0u : 1u);
  }
}

TEST(Choose, AContenderThatDoesNotCompileIsNotedOnce) {
  Choosing choosing;
  choosing.backend.script.compile = [](const Candidate& candidate) {
    return candidate == kDefault ? CompileResult{.status = Status::spills, .reason = "registers spill"}
                                 : CompileResult{};
  };
  const RobustChoice choice = choosing.one();
  EXPECT_EQ(choice.contenders.size(), 3u);
  EXPECT_EQ(choice.left_out.size(), 2u);
  EXPECT_EQ(choosing.notes, std::vector<std::string>{text(kDefault) + " is left out of the choice: registers spill"});
  EXPECT_EQ(choosing.backend.count("verify " + text(kDefault)), 0);
}

TEST(Choose, ACellThatDoesNotFitIsLeftOutAndSaidSo) {
  Choosing choosing;
  choosing.add(16, "zipf:1");
  choosing.backend.script.load = [&](const Problem& problem) {
    choosing.loaded = problem;
    if (problem.active_experts() == 2) throw OutOfMemory("it needs 12 GB, 8 GB are free", 12);
  };
  const RobustChoice choice = choosing.one();
  EXPECT_EQ(choice.cells.size(), 2u);
  ASSERT_EQ(choosing.notes.size(), 1u);
  EXPECT_EQ(choosing.notes[0], id(choosing.table.entries[1].cell) +
                                   " is left out of the choice: out of memory: it needs 12 GB, 8 GB are free");
}

TEST(Choose, TokenCountsAreMergedWithinTheLossAlone) {
  Choosing choosing;
  choosing.add(64, "balanced");
  choosing.add(64, "single");
  EXPECT_EQ(choosing.run().size(), 2u);
  choosing.request.bucket_loss = 0.03;
  ASSERT_EQ(choosing.run().size(), 1u);
  EXPECT_EQ(choosing.run()[0].candidate(), kBoth);
  choosing.request.bucket_loss = 0.01;
  EXPECT_EQ(choosing.run().size(), 2u);
}

TEST(Choose, EachTokenCountHasItsContendersUnlessCountsMayBeMerged) {
  Choosing choosing;
  choosing.table.entries.push_back(winner(small_cell(64), cpu(48)));
  choosing.run();
  EXPECT_EQ(choosing.begun, (std::vector<std::string>{"t16/balanced 4", "t16/single 4", "t64/uniform 2"}));
  choosing.begun.clear();
  choosing.request.bucket_loss = 0.01;
  choosing.run();
  EXPECT_EQ(choosing.begun, (std::vector<std::string>{"t16/balanced 5", "t16/single 5", "t64/uniform 5"}));
}

TEST(Choose, CellsThatLeaveNothingToChooseAreNotMeasured) {
  Choosing choosing;
  choosing.table.entries.pop_back();
  choosing.add(64, "single");
  EXPECT_TRUE(choosing.run().empty());
  EXPECT_EQ(choosing.backend.loads, 0);
  choosing.add(64, "balanced");
  choosing.table.entries.back().skipped = "no candidate is right";
  EXPECT_TRUE(choosing.run().empty());
}

TEST(Choose, AStoppedRunChoosesNothing) {
  Choosing choosing;
  choosing.backend.script.before = [&](const std::string& call, const Contender&) {
    if (call == "sample") choosing.stop = true;
  };
  EXPECT_TRUE(choosing.run().empty());
  EXPECT_EQ(choosing.begun.size(), 1u);
}

TEST(Choose, AStopEndsTenThousandRounds) {
  Choosing choosing;
  choosing.request.rounds = 10000;
  choosing.backend.script.before = [&](const std::string&, const Contender&) {
    choosing.stop = choosing.backend.calls.size() > 100;
  };
  EXPECT_TRUE(choosing.run().empty());
  EXPECT_LE(choosing.backend.calls.size(), 110U);
}

TEST(Choose, NoCellBeginsAfterTheEndOfTheTime) {
  Choosing choosing;
  choosing.request.end = std::chrono::steady_clock::now();
  EXPECT_TRUE(choosing.run().empty());
  EXPECT_EQ(choosing.backend.loads, 0);
  ASSERT_EQ(choosing.notes.size(), 1u);
  EXPECT_EQ(choosing.notes[0],
            "the time budget is spent: custom up, fwd bf16: 4 experts, top 2, n 64, k 32 gets no choice; "
            "run again with --append");
}

std::vector<Candidate> contenders(const std::vector<Entry>& entries) {
  std::vector<const Entry*> pointers;
  for (const Entry& entry : entries) pointers.push_back(&entry);
  return pick_contenders(pointers);
}

TEST(Contenders, AreWinnersThenDefaultsThenTheMostCommonTies) {
  const std::vector<Candidate> picked = contenders({winner(small_cell(16), cpu(16), {cpu(40), cpu(48), cpu(56)}),
                                                    winner(small_cell(32), cpu(24), {cpu(48), cpu(16)}),
                                                    winner(small_cell(64), cpu(24), {cpu(48), cpu(56)})});
  EXPECT_EQ(picked, (std::vector<Candidate>{cpu(24), cpu(16), kDefault, cpu(48), cpu(56), cpu(40)}));
}

TEST(Contenders, AreAtMostEightButAllWinnersAndADefault) {
  std::vector<Candidate> ties;
  for (int block = 200; block < 300; ++block) ties.push_back(cpu(block));
  std::vector<Entry> entries = {winner(small_cell(16), cpu(16), ties)};
  EXPECT_EQ(contenders(entries).size(), 8u);
  for (int i = 1; i < 12; ++i) entries.push_back(winner(small_cell(16 + i), cpu(16 + i)));
  EXPECT_EQ(contenders(entries).size(), 13u);
  EXPECT_EQ(contenders(entries).back(), kDefault);
}

TEST(HasChoice, NeedsTwoCellsOfALayer) {
  const std::vector<Cell> counts = {small_cell(16), small_cell(64)};
  EXPECT_FALSE(has_contest(counts, 0));
  EXPECT_TRUE(has_contest(counts, 0.02));
  EXPECT_TRUE(has_contest({small_cell(16), small_cell(64), small_cell(16, "zipf:1")}, 0));
  Cell other = small_cell(64);
  other.shape.layer.n = 128;
  EXPECT_FALSE(has_contest({small_cell(16), other}, 0.02));
}

}  // namespace
}  // namespace moetune
