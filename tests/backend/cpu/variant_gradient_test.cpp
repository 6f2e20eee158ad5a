// dX and dW of the variant against three loops: every instruction set, blocks of all sizes, and what a product may have
// beside the ops of today.
#include <gtest/gtest.h>

#include "backend/cpu/grouped_gemm.h"
#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;
using naive::candidate;

void run_variant(Multiplication& run, const Candidate& c, Isa isa = usable_isas().back()) {
  Workspace workspace;
  run.set.d.reset(run.pool);
  grouped_gemm(run.product, run.matrices(), cpu_knobs(c), microkernel(isa), run.pool, workspace);
}

class EveryVariantGradient : public EveryGradient {};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryVariantGradient,
                         testing::Combine(testing::Values(Op::dx, Op::dw), testing::ValuesIn(kDtypes),
                                          testing::ValuesIn(kFusions)),
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
      ASSERT_FALSE(cpu_variant().illegal(size.candidate, problem.shape, naive::device(3)));
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
  const int64_t bytes = operand.columns * size_bytes(operand.dtype);
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
