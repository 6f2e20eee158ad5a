// Layers over the fake backend: which pairs meet, which of them is chosen, and what is left out.
#include "tune/layers.h"

#include <gtest/gtest.h>

#include "record/layer.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

using fake::cpu;
using fake::FakeBackend;

const Candidate kUp = cpu(48), kOtherUp = cpu(24), kDown = cpu(48, 128), kOtherDown = cpu(16), kFallback = cpu(96);

Cell part(Projection projection) {
  Cell cell = fake::small_cell();
  Layer& layer = cell.shape.layer;
  layer.projection = projection;
  if (projection == Projection::down)
    layer.n = 32, layer.k = 32, cell.shape.fusion = {.permute_y = true, .topk_weights = true};
  else
    cell.shape.fusion = {.permute_x = true, .activation = Activation::silu};
  return cell;
}

Entry winner(Projection projection, const Candidate& candidate) {
  Entry entry;
  entry.cell = part(projection);
  entry.m_sizes = make_problem(entry.cell).routing.m_sizes;
  entry.candidate = candidate;
  entry.measurement = {.time = {1e-4, 1e-4, 1e-4, 11}};
  entry.rivals.push_back({.name = "default", .candidate = kFallback});
  return entry;
}

// Up and down with two candidates each. All take 100 us but the default, which takes 150.
struct Pairing {
  FakeBackend backend;
  TunedTable table;
  ContestRequest request = {.rounds = 11};
  std::atomic<bool> stop{false};
  std::vector<std::string> notes;

  Pairing() {
    backend.script.seconds = [](const Candidate& one) { return one == kFallback ? 150e-6 : 100e-6; };
    backend.script.noise.sigma = 1e-4;
    table.device = backend.device();
    table.entries = {winner(Projection::up, kUp), winner(Projection::down, kDown)};
    request.contenders = [](const Entries& entries) {
      const bool up = entries.at(0)->cell.shape.layer.projection == Projection::up;
      return up ? std::vector{kUp, kOtherUp} : std::vector{kDown, kOtherDown};
    };
  }

  std::vector<TunedLayer> run() {
    ContestListener listener;
    listener.note = [&](const std::string& text) { notes.push_back(text); };
    return measure_layers(table, backend, request, listener, stop);
  }

  TunedLayer one() {
    const std::vector<TunedLayer> layers = run();
    if (layers.size() != 1) throw std::runtime_error("expected one layer");
    return layers[0];
  }
};

double faster_others(const Candidate& up, const Candidate& down) {
  return up == kOtherUp && down == kOtherDown ? 0.9 : 1;
}

TEST(Layers, TheWinnersStayWhereNoPairIsFaster) {
  Pairing pairing;
  const TunedLayer layer = pairing.one();
  EXPECT_EQ(layer.up, pairing.table.entries[0].cell);
  EXPECT_EQ(layer.down, pairing.table.entries[1].cell);
  EXPECT_EQ(layer.up_candidate, kUp);
  EXPECT_EQ(layer.down_candidate, kDown);
  EXPECT_NEAR(layer.measurement.time.value, 200e-6, 1e-6);
  EXPECT_NEAR(layer.up_measurement.time.value, 100e-6, 1e-6);
  EXPECT_NEAR(layer.down_measurement.time.value, 100e-6, 1e-6);
  ASSERT_EQ(layer.rivals.size(), 2u);
  EXPECT_EQ(layer.rivals[0].name, "default");
  EXPECT_NEAR(layer.rivals[0].ratio.value, 2.0 / 3, 1e-3);
  EXPECT_EQ(layer.rivals[1].name, "loop");
  EXPECT_TRUE(pairing.notes.empty());
}

TEST(Layers, APairThatIsFasterTogetherIsChosen) {
  Pairing pairing;
  pairing.backend.script.together = faster_others;
  const TunedLayer layer = pairing.one();
  EXPECT_EQ(layer.up_candidate, kOtherUp);
  EXPECT_EQ(layer.down_candidate, kOtherDown);
  EXPECT_NEAR(layer.measurement.time.value, 180e-6, 1e-6);
  ASSERT_EQ(layer.rivals.size(), 3u);
  EXPECT_EQ(layer.rivals[0].name, "winners");
  EXPECT_NEAR(layer.rivals[0].ratio.value, 0.9, 1e-3);
}

TEST(Layers, APairWithinTheNoiseIsNotChosen) {
  Pairing pairing;
  pairing.backend.script.together = [](const Candidate& up, const Candidate&) { return up == kOtherUp ? 0.999 : 1; };
  pairing.backend.script.noise.sigma = 0.05;
  const TunedLayer layer = pairing.one();
  EXPECT_EQ(layer.up_candidate, kUp);
}

// The planted fault: down starts before up has written.
TEST(Layers, APairWhoseLaunchesDoNotWaitIsLeftOut) {
  Pairing pairing;
  pairing.backend.script.together = faster_others;
  pairing.backend.script.verify = [](const Contender& contender) {
    return contender.down == kOtherDown ? fake::wrong() : fake::right();
  };
  const TunedLayer layer = pairing.one();
  EXPECT_EQ(layer.down_candidate, kDown);
  ASSERT_FALSE(pairing.notes.empty());
  EXPECT_EQ(pairing.notes[0], id(part(Projection::up)) + ", then down: " + text(kOtherUp) + ", then " +
                                  text(kOtherDown) + " is left out: 7 of 2048 elements differ");
}

TEST(Layers, WinnersThatDoNotWaitMakeNoLayer) {
  Pairing pairing;
  pairing.backend.script.verify = [](const Contender& contender) {
    return contender.down == kDown ? fake::wrong() : fake::right();
  };
  EXPECT_TRUE(pairing.run().empty());
  ASSERT_EQ(pairing.notes.size(), 2u);
  EXPECT_NE(pairing.notes[1].find("no layer: its kernels do not run one after the other"), std::string::npos);
}

TEST(Layers, AContenderThatFailsIsLeftOut) {
  for (const bool of_baseline : {false, true}) {
    Pairing pairing;
    pairing.backend.script.before = [=](const std::string& call, const Contender& contender) {
      if (of_baseline ? contender.baseline == "loop" : call == "sample" && contender.down == kOtherDown)
        throw CandidateFault(Status::crashed, "signal 11");
    };
    const TunedLayer layer = pairing.one();
    EXPECT_EQ(layer.down_candidate, kDown);
    EXPECT_EQ(layer.rivals.size(), of_baseline ? 1U : 2U);
    EXPECT_EQ(pairing.notes.size(), of_baseline ? 1U : 2U);  // a pair with either candidate of up
  }
}

TEST(Layers, WithoutContendersThePairsOfTheTableAreMeasuredAgain) {
  Pairing pairing;
  pairing.table.layers = pairing.run();
  pairing.table.layers.at(0).down_candidate = kOtherDown;
  pairing.request.contenders = {};
  pairing.backend.script.together = faster_others;
  const TunedLayer layer = pairing.one();
  EXPECT_EQ(layer.up_candidate, kUp);
  EXPECT_EQ(layer.down_candidate, kOtherDown) << "though others are faster";
  EXPECT_EQ(mapped(layer.rivals, &Rival::name), (std::vector<std::string>{"winners", "default", "loop"}));
  pairing.table.layers.clear();
  EXPECT_TRUE(pairing.run().empty());
}

TEST(Layers, OperandsAreMadeAnewForEachLook) {
  Pairing pairing;
  pairing.request.rounds = 40, pairing.request.looks = 8;
  pairing.run();
  EXPECT_EQ(pairing.backend.loads, 8);
}

TEST(Layers, MemoryStopAndTimeLeaveThemOut) {
  Pairing full;
  full.backend.script.load = [](const Problem&) { throw OutOfMemory("needs 9 GB", 9); };
  EXPECT_TRUE(full.run().empty());
  EXPECT_NE(full.notes.at(0).find("no layer: out of memory: needs 9 GB"), std::string::npos);

  Pairing stopped;
  stopped.stop = true;
  EXPECT_TRUE(stopped.run().empty());
  EXPECT_TRUE(stopped.notes.empty());

  Pairing cut;  // in the midst of its rounds: those that were measured count
  cut.request.rounds = 10000;
  cut.backend.script.before = [&](const std::string&, const Contender&) { cut.stop = cut.backend.calls.size() > 200; };
  EXPECT_GT(cut.one().measurement.time.samples, kFewest);
  EXPECT_LE(cut.backend.calls.size(), 210U);

  Pairing late;
  late.request.end = std::chrono::steady_clock::now();
  EXPECT_TRUE(late.run().empty());
  EXPECT_NE(late.notes.at(0).find("the time budget is spent"), std::string::npos);
}

TEST(Layers, ACellWithoutAWinnerMakesNone) {
  Pairing pairing;
  pairing.table.entries[1].skipped = "out of memory";
  EXPECT_TRUE(pairing.run().empty());
  EXPECT_EQ(pairing.backend.loads, 0);
}

TEST(FastestCandidates, AreTheWinnerAndTheFastestTrials) {
  Entry entry = winner(Projection::up, kUp);
  entry.ties = {kOtherDown};
  EXPECT_EQ(fastest_candidates(entry, {}), (std::vector{kUp, kOtherDown}));
  JournalContents journal;
  const auto trial = [](const Candidate& candidate, double seconds, Status status = Status::ok) {
    Trial made{.candidate = candidate, .status = status, .reason = ""};
    made.measurement.time.value = seconds;
    return made;
  };
  journal.trials[id(entry.cell)] = {trial(kFallback, 3e-4), trial(kOtherUp, 2e-4),
                                    trial(cpu(16, 128), 1e-5, Status::wrong_result), trial(kUp, 1e-4)};
  EXPECT_EQ(fastest_candidates(entry, journal), (std::vector{kUp, kOtherUp, kFallback}));
}

}  // namespace
}  // namespace moetune
