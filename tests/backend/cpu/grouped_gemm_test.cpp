// The variant, the baseline and the reference against the obvious loop: dtypes, fusions, hard routings, ragged sizes,
// blocks and threads.
#include "backend/cpu/grouped_gemm.h"

#include <gtest/gtest.h>

#include <functional>

#include "backend/cpu/baseline.h"
#include "backend/cpu/reference.h"
#include "built_in.h"
#include "naive.h"

namespace moetune {
namespace {

using naive::candidate;
using naive::Setting;

constexpr Dtype kDtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};
constexpr Fusion kFusions[] = {{}, {.permute_x = true}, {.permute_y = true}, {.permute_y = true, .topk_weights = true}};

struct NamedRouting {
  std::string name;
  std::function<Problem(const Setting&)> problem;
};

/// All of the routings that break kernels.
const std::vector<NamedRouting>& hard_routings() {
  static const std::vector<NamedRouting> routings = {
      {"one_row",
       [](const Setting& s) {
         return naive::problem_of_rows({0, 0, 1, 0}, s, 1);
       }},
      {"all_rows_to_one_expert",
       [](const Setting& s) {
         return naive::problem_of_rows({0, 77, 0}, s, 1);
       }},
      {"empty_experts_around",
       [](const Setting& s) {
         return naive::problem_of_rows({0, 0, 40, 0, 0, 40, 0}, s, 2);
       }},
      {"block_less_one",
       [](const Setting& s) {
         return naive::problem_of_rows({23, 24, 25}, s, 2);
       }},
      {"direct_border",
       [](const Setting& s) {
         return naive::problem_of_rows({15, 16, 17, 16}, s, 2);
       }},
      {"more_experts_than_rows", [](const Setting& s) { return naive::problem_of("uniform", 3, 40, 2, s); }},
      {"uniform", [](const Setting& s) { return naive::problem_of("uniform", 50, 6, 3, s); }},
      {"skewed", [](const Setting& s) { return naive::problem_of("zipf:1.5", 64, 8, 2, s); }},
  };
  return routings;
}

class EveryCase : public testing::TestWithParam<std::tuple<Dtype, Fusion, size_t>> {
 protected:
  Problem problem(int64_t n, int64_t k) const {
    const auto& [dtype, fusion, routing] = GetParam();
    return hard_routings()[routing].problem({.dtype = dtype, .fusion = fusion, .n = n, .k = k});
  }
};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryCase,
                         testing::Combine(testing::ValuesIn(kDtypes), testing::ValuesIn(kFusions),
                                          testing::Range(size_t{0}, hard_routings().size())),
                         [](const auto& test) {
                           std::string label = std::string(name(std::get<0>(test.param))) + "_" +
                                               text(std::get<1>(test.param)) + "_" +
                                               hard_routings()[std::get<2>(test.param)].name;
                           std::replace(label.begin(), label.end(), '+', '_');
                           return label;
                         });

struct Sizes {
  int64_t n, k;
  Candidate candidate;
};

/// Ragged and round sizes, blocks smaller and larger than the problem.
std::vector<Sizes> sizes() {
  return {{1, 1, candidate(8, 32, 16, 1)},      {31, 15, candidate(8, 32, 16, 2)},
          {33, 17, candidate(16, 32, 16, 2)},   {64, 64, candidate(24, 64, 32, 2)},
          {70, 100, candidate(24, 32, 48, 3)},  {97, 129, candidate(64, 96, 64, 2)},
          {40, 33, candidate(128, 256, 256, 2)}};
}

TEST_P(EveryCase, EqualsTheNaiveLoopOnIntegers) {
  ThreadPool pool(3);
  Workspace workspace;
  for (const Sizes& size : sizes()) {
    const Problem p = problem(size.n, size.k);
    ASSERT_FALSE(find_variant("cpu").illegal(size.candidate, p.shape, naive::device(3)));
    naive::Operands operands(p, Values::integer);
    const naive::Matrix wanted = naive::multiply(p, operands);
    grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(size.candidate), microkernel(), pool, workspace);
    EXPECT_EQ(naive::difference(operands.y, wanted, size.n), "")
        << text(size.candidate) << " n " << size.n << " k " << size.k;
  }
}

TEST_P(EveryCase, BaselineEqualsTheNaiveLoopOnIntegers) {
  ThreadPool pool(3);
  LoopWorkspace workspace;
  for (const Sizes& size : sizes()) {
    const Problem p = problem(size.n, size.k);
    naive::Operands operands(p, Values::integer);
    const naive::Matrix wanted = naive::multiply(p, operands);
    loop_baseline(product_of(p), operands.matrices(), pool, workspace);
    EXPECT_EQ(naive::difference(operands.y, wanted, size.n), "") << "n " << size.n << " k " << size.k;
  }
}

TEST_P(EveryCase, ReferenceEqualsTheNaiveLoop) {
  ThreadPool pool(3);
  const Problem p = problem(37, 53);
  for (const Values values : {Values::integer, Values::random}) {
    naive::Operands operands(p, values);
    const Reference rounded = rounded_reference(product_of(p), operands.matrices(), pool);
    const Reference unrounded = unrounded_reference(product_of(p), operands.matrices(), pool);
    const naive::Matrix wanted = naive::multiply(p, operands);
    const int64_t row_bytes = 37 * size_bytes(p.shape.layer.dtype);
    naive::for_rows(p, [&](int64_t expert, int64_t row, int64_t target) {
      EXPECT_EQ(std::memcmp(rounded.d.data() + row * row_bytes, wanted.bytes.data() + target * row_bytes,
                            static_cast<size_t>(row_bytes)),
                0);
      const float weight = p.shape.fusion.topk_weights
                               ? round_to(p.shape.layer.dtype, operands.weights[p.routing.gather_indices[row]])
                               : 1;
      for (int64_t column = 0; column < 37; ++column)
        ASSERT_FLOAT_EQ(unrounded.d.as<float>()[row * 37 + column],
                        static_cast<float>(naive::sum_at(p, operands, expert, row, column) * weight));
    });
  }
}

class EveryIsaGemm : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryIsaGemm, testing::ValuesIn(usable_isas()),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(EveryIsaGemm, EqualsTheNaiveLoopOnIntegers) {
  ThreadPool pool(2);
  Workspace workspace;
  for (const Dtype dtype : kDtypes)
    for (const Fusion& fusion : kFusions) {
      const Problem p =
          naive::problem_of_rows({3, 0, 34, 16, 15}, {.dtype = dtype, .fusion = fusion, .n = 71, .k = 90}, 2);
      naive::Operands operands(p, Values::integer);
      const naive::Matrix wanted = naive::multiply(p, operands);
      for (const Candidate& c : {candidate(16, 64, 32, 2), candidate(8, 96, 128, 1)}) {
        grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(c), microkernel(GetParam()), pool, workspace);
        EXPECT_EQ(naive::difference(operands.y, wanted, 71), "")
            << name(dtype) << " " << text(fusion) << " " << text(c);
      }
    }
}

TEST(GroupedGemm, DoesNotDependOnTheNumberOfThreads) {
  ThreadPool pool(4);
  Workspace workspace;
  for (const Dtype dtype : kDtypes) {
    const Problem p = naive::problem_of("zipf:1", 150, 6, 2, {.dtype = dtype, .n = 130, .k = 301});
    naive::Operands operands(p, Values::random);
    std::vector<std::vector<std::byte>> results;
    for (const int threads : {1, 2, 3, 4, 4, 4}) {
      grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(32, 64, 64, threads)), microkernel(), pool,
                   workspace);
      results.push_back(operands.y.bytes);
    }
    for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << name(dtype) << " " << i;
  }
}

TEST(GroupedGemm, KeepsPackedWeightsApart) {
  // Blocks of rows that follow each other use packed W again: with two of everything a stale panel would show.
  ThreadPool pool(2);
  Workspace workspace;
  const Problem p = naive::problem_of_rows({64, 64, 64, 64}, {.n = 128, .k = 96}, 2);
  naive::Operands operands(p, Values::integer);
  const naive::Matrix wanted = naive::multiply(p, operands);
  for (int repeat = 0; repeat < 20; ++repeat)
    for (const Candidate& c : {candidate(24, 32, 32, 2), candidate(8, 64, 96, 2), candidate(32, 128, 16, 1)}) {
      std::fill(operands.y.bytes.begin(), operands.y.bytes.end(), std::byte{0xff});
      grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(c), microkernel(), pool, workspace);
      ASSERT_EQ(naive::difference(operands.y, wanted, 128), "") << text(c);
    }
}

TEST(GroupedGemm, PacksAgainWhereKIsTooDeepToKeep) {
  const int64_t k = kCpuKeepBytes / 4 / 32 + 24;
  const Candidate c = candidate(8, 32, 4096, 2);
  ASSERT_FALSE(cpu_keeps_b(cpu_knobs(c), k));
  ThreadPool pool(2);
  Workspace workspace;
  const Problem p = naive::problem_of_rows({20}, {.n = 2, .k = k}, 1);
  naive::Operands operands(p, Values::integer);
  const naive::Matrix wanted = naive::multiply(p, operands);
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(c), microkernel(), pool, workspace);
  EXPECT_EQ(naive::difference(operands.y, wanted, 2), "");
}

TEST(GroupedGemm, TakesDeepKInPiecesForFewRows) {
  const int64_t k = 2 * kCpuDirectDepth + 37;
  ThreadPool pool(2);
  Workspace workspace;
  for (const Dtype dtype : kDtypes) {
    const Problem p = naive::problem_of_rows({3, kCpuDirectRows}, {.dtype = dtype, .n = 5, .k = k}, 1);
    naive::Operands operands(p, Values::integer);
    const naive::Matrix wanted = naive::multiply(p, operands);
    grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(8, 32, 16, 2)), microkernel(), pool,
                 workspace);
    EXPECT_EQ(naive::difference(operands.y, wanted, 5), "") << name(dtype);
  }
}

TEST(GroupedGemm, LeavesRowsOfOtherRanksAlone) {
  ThreadPool pool(2);
  Workspace workspace;
  LoopWorkspace plain;
  for (const Dtype dtype : kDtypes) {
    const Setting setting{
        .dtype = dtype, .fusion = {.permute_y = true, .topk_weights = true}, .n = 40, .k = 24, .ep = 4};
    const Problem p = naive::problem_of("uniform", 30, 16, 4, setting);
    ASSERT_LT(p.rows(), naive::y_rows(p));
    naive::Operands operands(p, Values::integer), again(p, Values::integer);
    const naive::Matrix wanted = naive::multiply(p, operands);  // NaN in the rows of others
    grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(8, 32, 16, 2)), microkernel(), pool,
                 workspace);
    EXPECT_EQ(naive::difference(operands.y, wanted, 40), "");
    loop_baseline(product_of(p), again.matrices(), pool, plain);
    EXPECT_EQ(naive::difference(again.y, wanted, 40), "");
  }
}

TEST(GroupedGemm, GathersForOneRankOfMany) {
  ThreadPool pool(2);
  Workspace workspace;
  const Problem p = naive::problem_of("zipf:1", 30, 16, 4, {.fusion = {.permute_x = true}, .n = 40, .k = 24, .ep = 8});
  naive::Operands operands(p, Values::integer);
  const naive::Matrix wanted = naive::multiply(p, operands);
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(8, 32, 16, 2)), microkernel(), pool, workspace);
  EXPECT_EQ(naive::difference(operands.y, wanted, 40), "");
}

TEST(GroupedGemm, IsCloseOnRandomInputs) {
  ThreadPool pool(2);
  Workspace workspace;
  const Problem p = naive::problem_of("uniform", 60, 4, 2, {.n = 64, .k = 700});
  naive::Operands operands(p, Values::random);
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(32, 64, 128, 2)), microkernel(), pool,
               workspace);
  naive::for_rows(p, [&](int64_t expert, int64_t row, int64_t target) {
    for (int64_t column = 0; column < 64; ++column)
      ASSERT_NEAR(operands.y.get(target * 64 + column), naive::sum_at(p, operands, expert, row, column), 1e-3);
  });
}

TEST(GroupedGemm, GrowsItsWorkspaceForALargerCandidate) {
  ThreadPool pool(2);
  Workspace workspace;
  const Problem p = naive::problem_of_rows({50}, {.n = 64, .k = 64}, 1);
  naive::Operands operands(p, Values::integer);
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(8, 32, 16, 1)), microkernel(), pool, workspace);
  ASSERT_EQ(workspace.scratch.size(), 1u);
  const int64_t small = workspace.scratch[0].bytes();
  EXPECT_GE(small, cpu_scratch(cpu_knobs(candidate(8, 32, 16, 1)), 64).bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.scratch[0].data()) % (2 << 20), 0U) << "one huge page, one place";
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(1024, 1024, 64, 2)), microkernel(), pool,
               workspace);
  ASSERT_EQ(workspace.scratch.size(), 2u);
  EXPECT_GT(workspace.scratch[0].bytes(), small);
  const std::byte* before = workspace.scratch[0].data();
  grouped_gemm(product_of(p), operands.matrices(), cpu_knobs(candidate(8, 32, 16, 2)), microkernel(), pool, workspace);
  EXPECT_EQ(workspace.scratch[0].data(), before) << "memory that suffices is kept";
}

}  // namespace
}  // namespace moetune
