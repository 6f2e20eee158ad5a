// Interleaved rounds and paired ratios.
#include "tune/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tune/fake_backend.h"

namespace moetune {
namespace {

using fake::contender;
using fake::cpu;

Rounds measured(fake::FakeBackend& backend, const std::vector<Contender>& contenders, int rounds,
                const SampleRequest& request = {}) {
  Quiet quiet;
  return measure_rounds(backend, contenders, rounds, request, quiet);
}

TEST(MeasureRounds, TheFirstContenderRotatesAndTheOrderReverses) {
  fake::FakeBackend backend({.baselines = {{"a", 1e-3}, {"b", 2e-3}, {"c", 3e-3}}});
  measured(backend, {contender("a"), contender("b"), contender("c")}, 4);
  const std::vector<std::string> expected = {"sample a", "sample b", "sample c", "sample b", "sample c", "sample a",
                                             "sample c", "sample a", "sample b", "sample c", "sample b", "sample a"};
  EXPECT_EQ(backend.calls, expected);
}

TEST(MeasureRounds, EachContenderFollowsEachOtherEquallyOften) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g"};
  for (size_t count = 2; count <= names.size(); ++count) {
    fake::FakeBackend backend({.baselines = {}});
    std::vector<Contender> contenders;
    for (size_t i = 0; i < count; ++i) {
      backend.script.baselines.emplace_back(names[i], 1e-3);
      contenders.push_back(contender(names[i]));
    }
    measured(backend, contenders, static_cast<int>(2 * count));
    std::map<std::pair<std::string, std::string>, int> follows;
    for (size_t i = 0; i < backend.calls.size(); ++i)
      if (i % count > 0) ++follows[{backend.calls[i - 1], backend.calls[i]}];
    EXPECT_EQ(follows.size(), count * (count - 1)) << count;
    for (const auto& [pair, times] : follows) EXPECT_EQ(times, 2) << pair.first << ", " << pair.second;
  }
}

TEST(MeasureRounds, TimesStayWithTheirContender) {
  fake::FakeBackend backend({.baselines = {{"a", 1e-3}, {"b", 2e-3}}});
  const Rounds rounds = measured(backend, {contender("a"), contender("b")}, 5);
  EXPECT_EQ(rounds.values(0), std::vector<double>(5, 1e-3));
  EXPECT_EQ(rounds.values(1), std::vector<double>(5, 2e-3));
  EXPECT_EQ(rounds.blocks[1].size(), 5U);
  EXPECT_EQ(rounds.blocks[1][0].launches, 10);
}

TEST(MeasureRounds, TakesOneBlockATurnWhateverIsAsked) {
  fake::FakeBackend backend;
  const Rounds rounds = measured(backend, {contender("loop")}, 4, {.blocks = 50});
  EXPECT_EQ(rounds.blocks[0].size(), 4U);
}

TEST(MeasureRounds, AFaultNamesItsContender) {
  fake::FakeBackend backend;
  backend.script.before = [](const std::string&, const Contender& who) {
    if (who.baseline.empty()) throw CandidateFault(Status::crashed, "boom");
  };
  try {
    measured(backend, {contender("loop"), contender(cpu(24))}, 3);
    FAIL() << "expected a fault";
  } catch (const ContenderFault& fault) {
    EXPECT_EQ(fault.contender, 1U);
    EXPECT_EQ(fault.status, Status::crashed);
    EXPECT_STREQ(fault.what(), "boom");
  }
}

TEST(MeasureRounds, AppendKeepsPairsTogether) {
  fake::FakeBackend backend({.noise = {.sigma = 0.1}});
  const std::vector<Contender> both = {contender("loop"), contender(cpu(24))};
  Rounds all = measured(backend, both, 2);
  const Rounds more = measured(backend, both, 3);
  append(all, more);
  ASSERT_EQ(all.blocks[0].size(), 5U);
  ASSERT_EQ(all.blocks[1].size(), 5U);
  EXPECT_EQ(all.values(0)[2], more.values(0)[0]);
  EXPECT_EQ(all.values(1)[4], more.values(1)[2]);
}

TEST(PairedRatio, IsTheMedianOfRatiosNotTheRatioOfMedians) {
  const Estimate ratio = paired_ratio({1, 20, 300}, {2, 10, 100});  // 0.5, 2, 3; medians 20 / 10
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_NEAR(paired_ratio({1, 8, 9}, {2, 2, 3}).value, 3, 1e-12);  // medians 8 / 2
}

TEST(PairedRatio, ACommonDriftCancels) {
  std::vector<double> a, b;
  for (int i = 0; i < 20; ++i) a.push_back(1.1 * (1 + i)), b.push_back(1.0 * (1 + i));
  const Estimate ratio = paired_ratio(a, b);
  EXPECT_NEAR(ratio.value, 1.1, 1e-12);
  EXPECT_NEAR(ratio.low, 1.1, 1e-12);
  EXPECT_NEAR(ratio.high, 1.1, 1e-12);
}

TEST(PairedRatio, TheIntervalHoldsTheTruthAboutAsOftenAsItSays) {
  int inside = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    fake::FakeBackend backend(
        {.baselines = {{"a", 110e-6}, {"b", 100e-6}}, .noise = {.sigma = 0.03, .outliers = 0.05}, .seed = seed});
    const Rounds rounds = measured(backend, {contender("a"), contender("b")}, 21);
    const Estimate interval = paired_ratio(rounds, 0, 1);
    inside += interval.low <= 1.1 && 1.1 <= interval.high;
  }
  EXPECT_GE(inside, 180);
}

TEST(PairedRatio, OneRoundHasNoWidthAndNoRoundsNoRatio) {
  const Estimate one = paired_ratio({3}, {2});
  EXPECT_DOUBLE_EQ(one.value, 1.5);
  EXPECT_EQ(one.low, one.high);
  EXPECT_TRUE(std::isnan(paired_ratio({}, {}).value));
}

// Blocks [from, to) are disturbed, counted over all contenders.
struct Disturbed {
  int blocks = 0;
  fake::FakeBackend backend;
  Disturbed(int from, int to) {
    backend.script.before = [this, from, to](const std::string&, const Contender&) {
      backend.script.waited = blocks >= from && blocks < to ? 0.5 : 0;
      ++blocks;
    };
  }
};

TEST(MeasureRounds, ADisturbedRoundIsMeasuredAgain) {
  Disturbed disturbed(2, 3);
  Quiet quiet{.wait = 1};
  const Rounds rounds = measure_rounds(disturbed.backend, {contender("loop"), contender(cpu(24))}, 3, {}, quiet);
  EXPECT_EQ(disturbed.blocks, 8);  // the second round twice
  EXPECT_EQ(rounds.blocks[0].size(), 3U);
  for (const std::vector<Block>& all : rounds.blocks)
    for (const Block& block : all) EXPECT_EQ(block.waited, 0);
  EXPECT_LT(quiet.wait, 1);
  EXPECT_GT(quiet.wait, 0);
}

TEST(MeasureRounds, RoundsCountAsMeasuredIfWaitingDoesNotHelp) {
  Disturbed disturbed(0, 1000000);
  Quiet quiet{.wait = 0.03};
  const Rounds rounds = measure_rounds(disturbed.backend, {contender("loop")}, 3, {}, quiet);
  EXPECT_EQ(rounds.blocks[0].size(), 3U);
  EXPECT_EQ(rounds.blocks[0][2].waited, 0.5);
  EXPECT_LE(quiet.wait, 0);
  EXPECT_GT(disturbed.blocks, 3);
}

// The baseline takes seconds(n) in the n-th block, counted over all contenders.
struct Varying {
  int blocks = 0;
  fake::FakeBackend backend;
  explicit Varying(const std::function<double(int block)>& seconds) {
    backend.script.before = [this, seconds](const std::string&, const Contender&) {
      backend.script.baselines = {{"loop", seconds(++blocks)}};
    };
  }
};

TEST(MeasureRounds, ARoundWhoseControlIsSlowIsMeasuredAgainAndNotToItsEnd) {
  Varying loop([](int block) { return block <= 3 ? 330e-6 : 310e-6; });
  Quiet quiet{.wait = 1, .control = 0, .control_seconds = 300e-6};
  const Rounds rounds = measure_rounds(loop.backend, {contender("loop"), contender(cpu(24))}, 3, {}, quiet);
  EXPECT_EQ(loop.blocks, 9);  // the control goes first in the first round, whose first three attempts are given up
  EXPECT_EQ(rounds.looks, std::vector<size_t>{3});
  EXPECT_EQ(rounds.values(0), std::vector<double>(3, 310e-6));
  EXPECT_EQ(rounds.blocks[1].size(), 3U);
  EXPECT_LT(quiet.wait, 1);
  EXPECT_EQ(quiet.control_seconds, 300e-6);
}

TEST(MeasureRounds, LearnsTheUndisturbedTimeOfTheControl) {
  Varying loop([](int block) { return block >= 4 ? 200e-6 : 300e-6; });
  Quiet quiet{.wait = 0, .control = 0};
  measure_rounds(loop.backend, {contender("loop")}, 3, {}, quiet);
  EXPECT_DOUBLE_EQ(quiet.control_seconds, kUndisturbed * 300e-6);
  measure_rounds(loop.backend, {contender("loop")}, 3, {}, quiet);
  EXPECT_DOUBLE_EQ(quiet.control_seconds, kUndisturbed * 200e-6);
}

TEST(MeasureRounds, OneFastBlockOfTheControlDelaysNoRound) {
  Varying loop([](int block) { return block == 2 ? 200e-6 : 300e-6; });
  Quiet quiet{.wait = 1, .control = 0};
  measure_rounds(loop.backend, {contender("loop")}, 20, {}, quiet);
  EXPECT_EQ(loop.blocks, 20);  // none is measured again
  EXPECT_EQ(quiet.wait, 1);
}

TEST(MeasureRounds, RoundsCountAsMeasuredIfTheControlStaysSlow) {
  fake::FakeBackend backend;
  Quiet quiet{.wait = 1e-3, .control = 0, .control_seconds = 200e-6};
  const Rounds rounds = measure_rounds(backend, {contender("loop"), contender(cpu(24))}, 3, {}, quiet);
  EXPECT_EQ(rounds.values(0), std::vector<double>(3, 300e-6));
  EXPECT_LE(quiet.wait, 0);
}

TEST(MeasureRounds, NothingIsWaitedForOnceItIsStopped) {
  Disturbed disturbed(0, 1000000);
  const std::atomic<bool> stop = true;
  Quiet quiet{.wait = 60, .early = {.stop = &stop}};
  const Rounds rounds = measure_rounds(disturbed.backend, {contender("loop")}, 3, {}, quiet);
  EXPECT_EQ(disturbed.blocks, 3);  // none is measured again
  EXPECT_EQ(rounds.blocks[0].size(), 3U);
}

Rounds rounds_of(const std::vector<std::vector<double>>& seconds, std::vector<size_t> looks) {
  const auto block = [](double one) { return Block{.seconds = one}; };
  return {.blocks = mapped(seconds, [&](const auto& own) { return mapped(own, block); }), .looks = std::move(looks)};
}

TEST(StopEarly, EndsManyRoundsSoonAfterAStopOrTheEndOfTheTime) {
  for (const bool by_user : {true, false}) {
    fake::FakeBackend backend;
    std::atomic<bool> stop = false;
    Quiet quiet{.early = {.stop = &stop}};
    backend.script.before = [&](const std::string&, const Contender&) {
      if (backend.calls.size() < 50) return;
      if (by_user) stop = true;
      if (!by_user) quiet.early.end = Clock::now() - std::chrono::seconds(2);
    };
    const Rounds rounds = measure_rounds(backend, {contender("loop"), contender(cpu(24))}, 100000, {}, quiet);
    EXPECT_EQ(backend.calls.size(), 50U);
    EXPECT_EQ(rounds.count(), 25U);
    EXPECT_EQ(rounds.looks, std::vector<size_t>{25});
  }
}

TEST(StopEarly, GivesTheFewestRoundsIfTheyAreQuickAndOneOtherwise) {
  for (const double grace : {1e9, -1.0}) {
    fake::FakeBackend backend;
    const std::atomic<bool> stop = true;
    Quiet quiet{.early = {.stop = &stop, .grace = grace}};
    const Rounds rounds = measure_rounds(backend, {contender("loop"), contender(cpu(24))}, 100, {}, quiet);
    EXPECT_EQ(rounds.count(), grace > 0 ? static_cast<size_t>(kFewest) : 1U);
    EXPECT_EQ(backend.calls.size(), 2 * rounds.count());  // no round is left half measured
  }
}

// The second contender is the control, 10 seconds where nothing disturbs it.
Rounds three_looks(const std::vector<double>& control) {
  std::vector<double> own(control.size());
  std::iota(own.begin(), own.end(), 1);
  return rounds_of({own, control}, {2, 2, 1});
}

TEST(Undisturbed, LeavesOutRoundsWhoseControlIsSlow) {
  Rounds rounds = three_looks({10, 10.6, 12, 13, 10.4, 10.1, 9.9, 10.2});
  rounds.looks = {2, 2, 4};
  const Rounds kept = undisturbed(rounds, {.wait = 0, .control = 1, .control_seconds = 10});
  EXPECT_EQ(kept.values(0), (std::vector<double>{1, 5, 6, 7, 8}));
  EXPECT_EQ(kept.values(1), (std::vector<double>{10, 10.4, 10.1, 9.9, 10.2}));
  EXPECT_EQ(kept.looks, (std::vector<size_t>{1, 4}));
}

TEST(Undisturbed, KeepsAllWhereHardlyAnyWouldBeLeft) {
  const Quiet quiet{.wait = 0, .control = 1, .control_seconds = 10};
  for (const std::vector<double>& control :
       {std::vector<double>{12, 12, 12, 12, 12}, {12, 12, 10, 12, 12}, {10, 10, 10, 12, 10}}) {
    const Rounds rounds = three_looks(control);
    EXPECT_EQ(undisturbed(rounds, quiet).values(1), rounds.values(1));
  }
  std::vector<double> control(100, 12);
  std::fill_n(control.begin(), 10, 10);  // few of all, but enough
  Rounds rounds = three_looks(control);
  rounds.looks = {100};
  EXPECT_EQ(undisturbed(rounds, quiet).values(1), std::vector<double>(10, 10));
}

TEST(Undisturbed, KeepsAllWhereNoControlIsKnown) {
  const Rounds rounds = three_looks({10, 20, 30, 40, 50});
  EXPECT_EQ(undisturbed(rounds, {}).values(1), rounds.values(1));
}

Rounds looks_of(const std::vector<std::vector<double>>& looks) {
  std::vector<double> ratios;
  std::vector<size_t> sizes;
  for (const std::vector<double>& look : looks)
    ratios.insert(ratios.end(), look.begin(), look.end()), sizes.push_back(look.size());
  return rounds_of({ratios, std::vector<double>(ratios.size(), 1)}, sizes);
}

TEST(PairedRatio, LooksCountOnceEach) {
  // Rounds of a look agree, looks don't: a narrow interval would be a lie.
  const Rounds rounds = looks_of({{1.0, 1.0, 1.0}, {1.1, 1.1, 1.1}, {0.9, 0.9, 0.9}, {1.05, 1.05, 1.05}, {1, 1, 1}});
  const Estimate ratio = paired_ratio(rounds, 0, 1);
  EXPECT_DOUBLE_EQ(ratio.value, 1);
  EXPECT_LE(ratio.low, 0.91);
  EXPECT_GE(ratio.high, 1.049);
}

TEST(PairedRatio, AnOutlierInALookIsNone) {
  const std::vector<double> look = {2, 2, 9};
  const Estimate ratio = paired_ratio(looks_of({look, look, look, look, look, look}), 0, 1);
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_NEAR(ratio.high, 2, 1e-12);
}

TEST(PairedRatio, FewLooksArePooled) {
  const Rounds rounds = looks_of({{1, 2}, {3, 4, 5}});
  EXPECT_NEAR(paired_ratio(rounds, 0, 1).value, 3, 1e-12);
}

}  // namespace
}  // namespace moetune
