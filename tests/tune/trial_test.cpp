// One trial: a time counts only with a right result, and slow candidates cost little.
#include "tune/trial.h"

#include <gtest/gtest.h>

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

TEST(RunTrial, ACompileErrorIsNeitherVerifiedNorTimed) {
  fake::FakeBackend backend;
  backend.script.compile = [](const Candidate&) {
    return CompileResult{.status = Status::spills, .reason = "24 bytes of spills", .registers = 255, .spill_bytes = 24};
  };
  const Trial trial = run_trial(backend);
  EXPECT_EQ(trial.status, Status::spills);
  EXPECT_EQ(trial.reason, "24 bytes of spills");
  EXPECT_EQ(trial.compile.spill_bytes, 24);
  EXPECT_EQ(backend.count("verify"), 0);
  EXPECT_EQ(backend.count("sample"), 0);
}

TEST(RunTrial, AWrongResultIsNotTimed) {
  fake::FakeBackend backend;
  backend.script.verify = [](const Contender&) { return fake::wrong(); };
  const Trial trial = run_trial(backend);
  EXPECT_EQ(trial.status, Status::wrong_result);
  EXPECT_EQ(trial.reason, "7 of 2048 elements differ");
  EXPECT_EQ(trial.verdict.mismatches, 7);
  EXPECT_EQ(trial.measurement.time.samples, 0);
  EXPECT_EQ(backend.count("sample"), 0);
}

TEST(RunTrial, FaultsOfVerifyAndOfSampleBecomeData) {
  for (const std::string faulty : {"verify", "sample"}) {
    fake::FakeBackend backend;
    backend.script.before = [&](const std::string& call, const Contender&) {
      if (call == faulty) throw CandidateFault(Status::launch_error, "too many resources in " + call);
    };
    const Trial trial = run_trial(backend);
    EXPECT_EQ(trial.status, Status::launch_error);
    EXPECT_EQ(trial.reason, "too many resources in " + faulty);
    EXPECT_EQ(trial.measurement.time.samples, 0);
  }
}

TEST(RunTrial, AFaultOfTheMachineIsNoTrial) {
  fake::FakeBackend backend;
  backend.script.before = [](const std::string&, const Contender&) { throw machine_error("the GPU is gone"); };
  EXPECT_THROW(run_trial(backend), Error);
}

Trial against(double best, double seconds, fake::FakeBackend& backend, const SampleRequest& request = kFiveBlocks) {
  backend.script.seconds = [=](const Candidate&) { return seconds; };
  return try_compiled(backend, cpu(24), {}, request, best);
}

TEST(TryCompiled, AHopelessCandidateStopsAfterTwoBlocks) {
  fake::FakeBackend backend;
  const Trial trial = against(100e-6, 151e-6, backend);
  EXPECT_EQ(trial.status, Status::ok);
  EXPECT_EQ(trial.measurement.time.samples, 2);
  EXPECT_DOUBLE_EQ(trial.measurement.time.value, 151e-6);
}

TEST(TryCompiled, AContenderGetsAllItsBlocks) {
  fake::FakeBackend backend;
  EXPECT_EQ(against(100e-6, 149e-6, backend).measurement.time.samples, 5);
  EXPECT_EQ(against(100e-6, 50e-6, backend).measurement.time.samples, 5);
}

TEST(TryCompiled, OneDisturbedBlockDoesNotEndATrial) {
  fake::FakeBackend backend;
  int block = 0;
  backend.script.seconds = [&](const Candidate&) { return block++ == 0 ? 900e-6 : 90e-6; };
  const Trial trial = try_compiled(backend, cpu(24), {}, kFiveBlocks, 100e-6);
  EXPECT_EQ(trial.measurement.time.samples, 5);
  EXPECT_DOUBLE_EQ(trial.measurement.time.value, 90e-6);
}

TEST(TryCompiled, NeverTakesMoreBlocksThanAsked) {
  fake::FakeBackend backend;
  EXPECT_EQ(against(100e-6, 90e-6, backend, {.blocks = 1}).measurement.time.samples, 1);
  EXPECT_EQ(against(100e-6, 900e-6, backend, {.blocks = 1}).measurement.time.samples, 1);
  EXPECT_EQ(against(100e-6, 900e-6, backend, {.blocks = 2}).measurement.time.samples, 2);
}

}  // namespace
}  // namespace moetune
