// The backend as the tuner sees it.
#include <gtest/gtest.h>

#include <chrono>

#include "backend/cpu/machine.h"
#include "base/hash.h"
#include "base/system/process.h"
#include "built_in.h"
#include "error_of.h"
#include "three_loops.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

using namespace three_loops;

Problem small_problem(Dtype dtype = Dtype::bf16, Fusion fusion = {}, Op op = Op::fwd) {
  return problem_of("zipf:1", 64, 8, 2, {.dtype = dtype, .fusion = fusion, .n = 96, .k = 120, .op = op});
}

Contender loop() { return {.baseline = "loop", .candidate = {}}; }
Contender of(const Candidate& c) { return {.baseline = "", .candidate = c}; }

/// The status and sentence of a CandidateFault.
template <class Action>
std::string fault_of(Action action) {
  try {
    action();
  } catch (const CandidateFault& fault) {
    return std::string(name(fault.status)) + ": " + fault.what();
  }
  return "none";
}

class CpuBackend : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = make_cpu_backend();
};

TEST_F(CpuBackend, VerifiesEveryCase) {
  for (const auto& [op, dtype, fusion] : all_cases()) {
    const Problem p = small_problem(dtype, fusion, op);
    const Product product = product_of(p);
    backend->load(p);
    for (const Contender& contender :
         {loop(), of(find_variant("cpu").fallback(p, backend->device())), of(candidate(8, 32, 16, 1))}) {
      const Verdict verdict = backend->verify(contender);
      EXPECT_TRUE(verdict.ok) << name(op) << " " << name(dtype) << " " << text(fusion) << ": " << verdict.reason;
      EXPECT_EQ(verdict.elements, 2 * (result_rows(product, product.d) * product.d.columns +
                                       (product.weight_gradient ? product.slots : 0) +
                                       (product.h ? result_rows(product, *product.h) * product.n : 0)));
      EXPECT_EQ(verdict.mismatches, 0);
      if (product.d.type.dtype != Dtype::fp32) {
        EXPECT_GT(verdict.normalised_error, 1e-5) << "random inputs round";
      }
    }
  }
}

// D that accumulates is restored before each look at it.
TEST_F(CpuBackend, VerifiesAndRepeatsAfterSampling) {
  const std::tuple<Op, Fusion> cases[] = {{Op::fwd, {}},
                                          {Op::dw, {.accumulate = true}},
                                          {Op::dw, {.accumulate = true, .fp32_dw = true}},
                                          {Op::dx, kSummed},
                                          {Op::fwd, kByToken},
                                          {Op::dx, kWithGradient}};
  for (const auto& [op, fusion] : cases) {
    backend->load(small_problem(Dtype::bf16, fusion, op));
    for (const Contender& contender : {loop(), of(candidate(8, 32, 16, 2))}) {
      EXPECT_EQ(backend->sample(contender, {.blocks = 2, .block_seconds = 1e-4}).size(), 2u);
      for (int again = 0; again < 2; ++again) {
        const Verdict verdict = backend->verify(contender);
        EXPECT_TRUE(verdict.ok) << text(fusion) << ": " << verdict.reason;
      }
      const Repetition repetition = backend->repeat(contender, 0.01);
      EXPECT_EQ(repetition.different, 0) << repetition.reason;
    }
  }
}

TEST_F(CpuBackend, RepeatsForAsLongAsAsked) {
  backend->load(small_problem(Dtype::bf16, kWeighted));
  for (const Contender& contender : {loop(), of(candidate(8, 32, 16, 2))}) {
    const auto begin = std::chrono::steady_clock::now();
    const Repetition repetition = backend->repeat(contender, 0.05);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
    EXPECT_GT(repetition.launches, 1);
    EXPECT_EQ(repetition.different, 0) << repetition.reason;
    EXPECT_EQ(backend->repeat(contender, 1e-9).launches, 1);
  }
  EXPECT_TRUE(backend->verify(loop()).ok);
}

TEST_F(CpuBackend, SamplesAsManyBlocksAsAsked) {
  backend->load(small_problem());
  for (const bool hot : {false, true}) {
    const auto blocks = backend->sample(of(candidate(8, 32, 16, 1)), {.blocks = 5, .block_seconds = 0.02, .hot = hot});
    ASSERT_EQ(blocks.size(), 5u);
    for (const Block& block : blocks) {
      EXPECT_GT(block.seconds, 0);
      EXPECT_GT(block.launches, 1);
      EXPECT_EQ(block.clock_mhz, 0);
    }
  }
  const auto blocks = backend->sample(loop(), {.blocks = 1, .block_seconds = 1e-12});
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].launches, 1) << "too short for more";
}

TEST_F(CpuBackend, MeasuresHowBusyOthersKeepTheProcessors) {
  const int processors = backend->device().processors;
  backend->load(small_problem());
  const SampleRequest request = {.blocks = 5, .block_seconds = 0.02};
  const auto waited = [&] {
    double sum = 0;
    for (const Contender& who : {loop(), of(candidate(8, 32, 16, processors))})
      for (const Block& block : backend->sample(who, request)) {
        EXPECT_GE(block.waited, 0);
        EXPECT_LE(block.waited, 1);
        sum += block.waited / 10;
      }
    return sum;
  };
  const double before = waited();
  std::vector<Child> others;
  for (int i = 0; i < 2 * processors; ++i)
    others.emplace_back(std::vector<std::string>{"/bin/sh", "-c", "while :; do :; done"});
  if (seconds_without_processor() == 0) GTEST_SKIP() << "this system doesn't tell";
  EXPECT_GT(waited(), 0.1) << "two of three threads on each processor are not ours; before: " << before;
}

TEST_F(CpuBackend, RefusesAnUnknownBaseline) {
  EXPECT_EQ(backend->baselines(), std::vector<std::string>{"loop"});
  backend->load(small_problem());
  const Contender typo{.baseline = "lop", .candidate = {}};
  for (const Caught& error : {error_of([&] { backend->verify(typo); }), error_of([&] { backend->sample(typo, {}); })}) {
    EXPECT_EQ(error.exit, Exit::request);
    EXPECT_EQ(error.what, "unknown baseline 'lop'");
    EXPECT_NE(error.hint.find("loop"), std::string::npos) << error.hint;
  }
}

TEST_F(CpuBackend, RefusesAnIllegalCandidate) {
  backend->load(small_problem());
  EXPECT_EQ(fault_of([&] { backend->verify(of(candidate(12, 32, 16, 1))); }),
            "illegal: block_m must be a multiple of 8 in 8 to 4096");
  EXPECT_EQ(fault_of([&] { backend->sample(of(candidate(8, 33, 16, 1)), {}); }),
            "illegal: block_n must be a multiple of 32 in 32 to 4096");
  Candidate other = candidate(8, 32, 16, 1);
  other.variant = built_in().find("mma");
  EXPECT_EQ(fault_of([&] { backend->verify(of(other)); }), "illegal: mma runs on GPUs only");
}

TEST_F(CpuBackend, NeedsAProblem) {
  EXPECT_EQ(error_of([&] { backend->verify(loop()); }).what, "no problem is loaded");
  EXPECT_EQ(error_of([&] { backend->sample(loop(), {}); }).exit, Exit::bug);
}

TEST_F(CpuBackend, CompilesWhatIsLegal) {
  const Candidate candidates[] = {candidate(8, 32, 16, 1), candidate(8, 31, 16, 1)};
  const auto results = backend->compile(small_problem().shape, candidates);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status, Status::ok);
  EXPECT_EQ(results[1].status, Status::compile_error);
  EXPECT_EQ(results[1].reason, "block_n must be a multiple of 32 in 32 to 4096");
}

TEST_F(CpuBackend, IsOutOfMemoryBeforeItAllocates) {
  const Problem p =
      problem_of_rows({1, 1, 1, 1}, {.dtype = Dtype::bf16, .n = int64_t{1} << 22, .k = int64_t{1} << 22}, 1);
  EXPECT_THROW(backend->load(p), OutOfMemory);
  EXPECT_EQ(error_of([&] { backend->verify(loop()); }).what, "no problem is loaded");
  backend->load(small_problem());
  EXPECT_TRUE(backend->verify(loop()).ok);
}

TEST_F(CpuBackend, DescribesItsEnvironment) {
  const Json environment = backend->environment();
  const Json& identity = environment.at("identity");
  EXPECT_EQ(identity.at("backend"), "cpu");
  EXPECT_EQ(identity.at("device"), backend->device().name);
  EXPECT_EQ(identity.at("isa"), best_tile().isa);
  EXPECT_EQ(identity.at("kernels").get<std::string>().size(), 32u);
  EXPECT_NE(identity.at("kernels"), Hash().add("").add("").add("").add("").hex())
      << "the sources are not in the binary";
  EXPECT_EQ(environment, make_cpu_backend()->environment());
}

TEST_F(CpuBackend, MeasuresItsCeilings) {
  const Ceilings ceilings = backend->ceilings();
  EXPECT_GT(ceilings.dense_burst, 1e9);
  EXPECT_GE(ceilings.noise, 0);
}

}  // namespace
}  // namespace moetune
