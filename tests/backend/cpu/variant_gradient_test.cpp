// dX and dW of the variant against three loops: every instruction set, blocks of all sizes, and what a product may have
// beside the ops of today.
#include <gtest/gtest.h>

#include "backend/cpu/grouped_gemm.h"
#include "built_in.h"
#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;
using naive::candidate;

void run_variant(Multiplication& run, const Candidate& c, Isa isa = usable_isas().back()) {
  Workspace workspace;
  reset_output(run.product, run.set, run.pool);
  grouped_gemm(run.product, run.matrices(), cpu_knobs(c), microkernel(isa), run.pool, workspace);
}

class EveryVariantGradient : public EveryGradient {};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryVariantGradient, testing::ValuesIn(gradients()),
                         [](const auto& test) { return label(test.param); });

struct Sizes {
  int64_t n, k;
  Candidate candidate;
};

TEST_P(EveryVariantGradient, EqualsThreeLoopsOnIntegers) {
  const Sizes sizes[] = {{1, 1, candidate(8, 32, 16, 1)},
                         {7, 33, candidate(8, 32, 16, 2)},
                         {49, 13, candidate(24, 64, 32, 3)},
                         {66, 70, candidate(40, 32, 48, 2)},
                         {35, 97, candidate(128, 256, 256, 2)}};
  for (const Sizes& size : sizes)
    on_routings(size.n, size.k, [&](const Problem& problem) {
      ASSERT_FALSE(find_variant("cpu").illegal(size.candidate, problem.shape, naive::device(3)));
      Multiplication run(problem, Values::integer);
      for (const Isa isa : usable_isas()) {
        run_variant(run, size.candidate, isa);
        EXPECT_EQ(run.difference(), "") << text(size.candidate) << " " << name(isa);
      }
      EXPECT_TRUE(run.exact().ok);
    });
}

TEST_P(EveryVariantGradient, IsCloseOnRandomInputs) {
  on_routings(66, 70, [](const Problem& problem) {
    Multiplication run(problem, Values::random);
    run_variant(run, candidate(24, 64, 32, 2));
    const Verdict verdict = run.close();
    EXPECT_TRUE(verdict.ok) << verdict.reason;
  });
}

TEST_P(EveryVariantGradient, DoesNotDependOnTheNumberOfThreads) {
  const auto& [op, dtype, fusion] = GetParam();
  const Setting setting{.dtype = dtype, .fusion = fusion, .n = 130, .k = 101, .op = op};
  Multiplication run(naive::problem_of("zipf:1", 150, 6, 2, setting), Values::random);
  std::vector<std::vector<std::byte>> results;
  for (const int threads : {1, 2, 3, 3}) {
    run_variant(run, candidate(32, 64, 64, threads));
    results.emplace_back(run.set.d.data(), run.set.d.data() + run.set.d.bytes());
    results.back().insert(results.back().end(), run.set.dweights.data(),
                          run.set.dweights.data() + run.set.dweights.bytes());
  }
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << i;
}

class EveryVariantOp : public testing::TestWithParam<Op> {
 protected:
  static void expect_right(const Problem& problem, const Extras& extras) {
    Multiplication run(problem, Values::integer, extras);
    for (const Candidate& c : {candidate(8, 32, 16, 2), candidate(24, 64, 64, 3)}) {
      run_variant(run, c);
      EXPECT_EQ(run.difference(), "") << text(c);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryVariantOp, testing::Values(Op::fwd, Op::dx, Op::dw),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(EveryVariantOp, HasAResultDtypeOfItsOwn) {
  expect_right(plain(GetParam()), {.result_dtype = Dtype::fp32});
  expect_right(plain(GetParam(), Dtype::fp32), {.result_dtype = Dtype::fp16});
}
TEST_P(EveryVariantOp, TakesMoreRowsInMemoryThanExpertsOwn) { expect_right(plain(GetParam()), {.more_rows = 9}); }
TEST_P(EveryVariantOp, TakesRowsPaddedToACapacity) {
  expect_right(plain(GetParam()), {.capacity = 21});
  expect_right(plain(GetParam(), Dtype::fp16), {.capacity = 64});
}

// Rows of memory of a ragged input that no expert owns become NaN.
void spoil_padding(const Product& product, const Operand& operand, const Buffer& input) {
  std::vector<bool> owned(static_cast<size_t>(operand.rows));
  for (const int64_t row : row_map(product, operand)) owned[static_cast<size_t>(row)] = true;
  const int64_t bytes = operand.columns * size_bytes(operand.type.dtype);
  for (int64_t row = 0; row < operand.rows; ++row)
    if (!owned[static_cast<size_t>(row)])
      for (int64_t i = 0; i < bytes; i += 2) std::memcpy(input.data() + row * bytes + i, &kUnwritten, 2);
}

TEST_P(EveryVariantOp, IgnoresRowsBesideThoseOfAnExpert) {
  for (const int64_t capacity : {21, 22, 64}) {
    Multiplication run(plain(GetParam()), Values::integer, {.capacity = capacity});
    for (const auto& [operand, input] : {std::pair(&run.product.a, &run.set.a), std::pair(&run.product.b, &run.set.b)})
      if (is_ragged(run.product, *operand)) spoil_padding(run.product, *operand, *input);
    for (const Candidate& c : {candidate(8, 32, 16, 2), candidate(24, 64, 64, 3)}) {
      run_variant(run, c);
      EXPECT_EQ(run.difference(), "") << text(c) << " capacity " << capacity;
    }
  }
}

TEST(VariantDw, LeavesExpertsWithoutRowsAloneWhereItAccumulates) {
  for (const bool fp32 : {false, true}) {
    Multiplication run(plain(Op::dw, Dtype::bf16, {.accumulate = true, .fp32_dw = fp32}), Values::integer);
    const int64_t bytes = 40 * 56 * size_bytes(run.product.d.type.dtype);  // of an expert
    // Signalling NaN in bf16 and in fp32: whoever adds to it makes it quiet.
    const auto spoilt = [](int64_t i) { return i % 2 == 0 ? std::byte{0x81} : std::byte{0x7f}; };
    const auto spoil = [&] {  // expert 1 has no rows
      for (int64_t i = 0; i < bytes; ++i) run.set.d.data()[bytes + i] = spoilt(i);
    };
    const auto is_left = [&] {
      for (int64_t i = 0; i < bytes; ++i)
        if (run.set.d.data()[bytes + i] != spoilt(i)) return false;
      return true;
    };
    Workspace workspace;
    LoopWorkspace plain_workspace;
    spoil();
    grouped_gemm(run.product, run.matrices(), cpu_knobs(candidate(24, 64, 64, 2)), microkernel(), run.pool, workspace);
    EXPECT_TRUE(is_left());
    loop_baseline(run.product, run.matrices(), run.pool, plain_workspace);
    EXPECT_TRUE(is_left());
  }
}
TEST(VariantDw, AddsOnceALaunch) {
  Multiplication run(plain(Op::dw, Dtype::fp32, {.accumulate = true}), Values::integer);
  run_variant(run, candidate(24, 64, 64, 2));
  const float once = run.element(5, 7), before = operand_value(Values::integer, run.product.seed, kStreamW, 5 * 56 + 7);
  ASSERT_NE(once, before);
  Workspace workspace;
  grouped_gemm(run.product, run.matrices(), cpu_knobs(candidate(24, 64, 64, 2)), microkernel(), run.pool, workspace);
  EXPECT_EQ(run.element(5, 7), 2 * once - before);
}

TEST(VariantDw, PacksAgainWhereAnExpertIsTooDeepToKeep) {
  const Candidate c = candidate(8, 4096, 64, 2);
  const int32_t deep = kCpuKeepBytes / 4 / 4096 + 1;
  ASSERT_FALSE(cpu_keeps_b(cpu_knobs(c), deep));
  ASSERT_TRUE(cpu_keeps_b(cpu_knobs(c), deep - 1));
  const Setting setting{.dtype = Dtype::fp32, .n = 20, .k = 33, .op = Op::dw};
  Multiplication run(naive::problem_of_rows({deep - 1, 3, deep}, setting, 1), Values::integer);
  run_variant(run, c);
  EXPECT_EQ(run.difference(), "");
}

}  // namespace
}  // namespace moetune
