// One trial: a time counts only with a right result, and slow candidates cost little.
#include "tune/trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

using fake::cpu;

const SampleRequest kFiveBlocks{.blocks = 5};

Trial run_trial(Backend& backend) {
  const Candidate candidate = cpu(24);
  const auto results = backend.compile(fake::small_cell().shape, std::span(&candidate, 1));
  return try_compiled(backend, candidate, results.at(0), kFiveBlocks, std::nullopt);
}

TEST(RunTrial, CompilesVerifiesAndMeasuresInThisOrder) {
  fake::FakeBackend backend;
  const Trial trial = run_trial(backend);
  EXPECT_EQ(trial.status, Status::ok);
  EXPECT_EQ(trial.measurement.time.samples, 5);
  EXPECT_EQ(trial.measurement.launches, 50);
  EXPECT_TRUE(trial.verdict.ok);
  const std::string name = text(cpu(24));
  EXPECT_EQ(backend.calls, (std::vector<std::string>{"compile " + name, "verify " + name, "sample " + name}));
}

TEST(RunTrial, FaultsOfTheCandidateBecomeDataAndEndTheTrial) {
  const CompileResult spills = {
      .status = Status::spills, .reason = "24 bytes of spills", .registers = 255, .spill_bytes = 24};
  fake::Script unspilt, wrong, unverified, unsampled;
  unspilt.compile = [=](const Candidate&) { return spills; };
  wrong.verify = [](const Contender&) { return fake::wrong(); };
  const auto fails_in = [](const std::string& faulty) {
    return [=](const std::string& call, const Contender&) {
      if (call == faulty) throw CandidateFault(Status::launch_error, "too many resources");
    };
  };
  unverified.before = fails_in("verify"), unsampled.before = fails_in("sample");
  const struct {
    fake::Script script;
    Status status;
    std::string reason;
    int verified = 1, sampled = 0;
  } cases[] = {{unspilt, Status::spills, "24 bytes of spills", 0},
               {wrong, Status::wrong_result, "7 of 2048 elements differ"},
               {unverified, Status::launch_error, "too many resources"},
               {unsampled, Status::launch_error, "too many resources", 1, 1}};
  for (const auto& one : cases) {
    fake::FakeBackend backend(one.script);
    const Trial trial = run_trial(backend);
    EXPECT_EQ(trial.status, one.status);
    EXPECT_EQ(trial.reason, one.reason);
    EXPECT_EQ(trial.compile.spill_bytes, one.status == Status::spills ? 24 : 0);
    EXPECT_EQ(trial.verdict.mismatches, one.status == Status::wrong_result ? 7 : 0);
    EXPECT_EQ(trial.measurement.time.samples, 0);
    EXPECT_EQ(backend.count("verify"), one.verified);
    EXPECT_EQ(backend.count("sample"), one.sampled);
  }
}

TEST(RunTrial, AFaultOfTheMachineIsNoTrial) {
  fake::FakeBackend backend;
  backend.script.before = [](const std::string&, const Contender&) { throw machine_error("the GPU is gone"); };
  EXPECT_THROW(run_trial(backend), Error);
}

TEST(TryCompiled, AHopelessCandidateStopsAfterTwoBlocksAndNeverTakesMoreThanAsked) {
  const struct {
    std::vector<double> seconds;  // of the blocks; the last stays
    int blocks, samples;
    double time;
  } cases[] = {{{151e-6}, 5, 2, 151e-6},      {{149e-6}, 5, 5, 149e-6}, {{50e-6}, 5, 5, 50e-6},
               {{90e-6}, 1, 1, 90e-6},        {{900e-6}, 1, 1, 900e-6}, {{900e-6}, 2, 2, 900e-6},
               {{900e-6, 90e-6}, 5, 5, 90e-6}};  // one disturbed block
  for (const auto& one : cases) {
    fake::FakeBackend backend;
    size_t block = 0;
    backend.script.seconds = [&](const Candidate&) { return one.seconds[std::min(block++, one.seconds.size() - 1)]; };
    const Trial trial = try_compiled(backend, cpu(24), {}, {.blocks = one.blocks}, 100e-6);
    EXPECT_EQ(trial.status, Status::ok);
    EXPECT_EQ(trial.measurement.time.samples, one.samples);
    EXPECT_DOUBLE_EQ(trial.measurement.time.value, one.time);
  }
}

}  // namespace
}  // namespace moetune
