// Values, copies and memory of operand sets.
#include "backend/cpu/operands.h"

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cpu/machine.h"
#include "three_loops.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

using namespace three_loops;

constexpr int64_t kGiga = int64_t{1} << 30;

std::string out_of_memory(const Problem& problem, int64_t available, int64_t& needed) {
  try {
    plan_memory(product_of(problem), device(2), available);
  } catch (const OutOfMemory& error) {
    needed = error.needed_bytes;
    return error.what();
  }
  return "";
}

TEST(CpuOperands, HaveTheValuesOfTheProblem) {
  ThreadPool pool(3);
  for (const Dtype dtype : kDtypes)
    for (const Values values : {Values::integer, Values::random}) {
      const Problem p = problem_of_rows({40, 60, 3}, {.dtype = dtype, .n = 70, .k = 900}, 1);
      const OperandSet set = make_set(product_of(p), values, pool);
      const auto expect = [&](const Buffer& input, int stream, int64_t count) {
        std::vector<float> floats(static_cast<size_t>(count));
        to_floats(dtype, input.data(), count, floats.data());
        for (size_t i = 0; i < floats.size(); ++i)
          ASSERT_EQ(floats[i], round_to(dtype, operand_value(values, p.seed, stream, i)));
      };
      expect(set.a, kStreamX, 103 * 900);
      expect(set.b, kStreamW, 3 * 70 * 900);
    }
}

TEST(CpuOperands, FillOnlyExpertsWithRows) {
  ThreadPool pool(2);
  const Problem p = problem_of_rows({0, 8, 0}, {.n = 64, .k = 64}, 1);
  const OperandSet set = make_set(product_of(p), Values::random, pool);
  const auto sum = [&](int64_t expert) {
    double total = 0;
    for (int64_t i = 0; i < 64 * 64; ++i) total += std::abs(set.b.as<float>()[expert * 64 * 64 + i]);
    return total;
  };
  EXPECT_EQ(sum(0), 0);
  EXPECT_GT(sum(1), 100);
  EXPECT_EQ(sum(2), 0);
}

TEST(CpuOperands, HoldXForTheWeightsGradientAlone) {
  ThreadPool pool(2);
  Problem p = problem_of_rows({8, 0, 24},
                              {.fusion = {.permute_y = true, .topk_weights = true}, .n = 64, .k = 70, .op = Op::dx}, 1);
  EXPECT_EQ(make_set(product_of(p), Values::random, pool).dweights.bytes(), 0);
  p.shape.fusion.weight_gradient = true;
  const std::vector<OperandSet> sets = make_sets(product_of(p), 2, pool);
  EXPECT_NE(sets[0].x.data(), sets[1].x.data());
  for (const OperandSet& set : sets) {
    EXPECT_EQ(set.dweights.bytes(), 32 * 4);
    for (int64_t i = 0; i < 32 * 70; ++i)
      ASSERT_EQ(set.x.as<float>()[i], operand_value(Values::random, p.seed, kStreamX, static_cast<uint64_t>(i)));
  }
}

TEST(CpuOperands, RotateOverCopiesInOtherMemory) {
  ThreadPool pool(2);
  const Problem p = problem_of_rows({8, 0, 24}, {.n = 64, .k = 700}, 1);
  const std::vector<OperandSet> sets = make_sets(product_of(p), 3, pool);
  ASSERT_EQ(sets.size(), 3u);
  for (size_t i = 1; i < sets.size(); ++i) {
    EXPECT_NE(sets[i].b.data(), sets[0].b.data());
    EXPECT_EQ(std::memcmp(sets[i].b.data(), sets[0].b.data(), static_cast<size_t>(sets[0].b.bytes())), 0);
    EXPECT_EQ(std::memcmp(sets[i].a.data(), sets[0].a.data(), static_cast<size_t>(sets[0].a.bytes())), 0);
  }
}

TEST(CpuOperands, ScaleByWeightsOnlyWhereAsked) {
  Problem p = problem_of("uniform", 10, 4, 2, {.fusion = {.permute_y = true, .topk_weights = true}});
  const std::vector<float> weights = make_topk_weights(product_of(p), Values::random);
  ASSERT_EQ(weights.size(), 20u);
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_EQ(weights[i], operand_value(Values::integer, p.seed, kStreamWeights, i));
  p.shape.fusion.topk_weights = false;
  EXPECT_TRUE(make_topk_weights(product_of(p), Values::random).empty());
}

TEST(CpuMemory, RotatesOverThreeCaches) {
  const auto plan_of = [](int64_t side, int64_t available) {
    return plan_memory(product_of(problem_of_rows({2, 2}, {.n = side, .k = side}, 1)), device(2), available);
  };
  // 8 MB of W a launch: 96 MB take twelve launches and a little less for X and Y.
  const double touched = bytes(product_of(problem_of_rows({2, 2}, {.n = 1024, .k = 1024}, 1)));
  const MemoryPlan plan = plan_of(1024, 64 * kGiga);
  EXPECT_GE(plan.sets * touched, static_cast<double>(3 * device(2).cache_bytes));
  EXPECT_LT((plan.sets - 1) * touched, static_cast<double>(3 * device(2).cache_bytes));
  EXPECT_EQ(plan_of(8192, 64 * kGiga).sets, 2) << "the fewest";
  EXPECT_EQ(plan_of(32, 64 * kGiga).sets, 64) << "the most";
  const MemoryPlan shorter = plan_of(1024, 64 << 20);
  EXPECT_GE(shorter.sets, 2);
  EXPECT_LE(shorter.total_bytes(), 0.8 * (64 << 20));
  EXPECT_EQ(plan_of(8192, int64_t{1400} << 20).sets, 1) << "512 MB of W: one is cold";
}
TEST(CpuMemory, CountsOnlyExpertsWithRows) {
  const Problem all = problem_of_rows({2, 2, 2, 2}, {.n = 512, .k = 512}, 1);
  const Problem one = problem_of_rows({8, 0, 0, 0}, {.n = 512, .k = 512}, 1);
  EXPECT_EQ(plan_memory(product_of(all), device(2), kGiga).set_bytes -
                plan_memory(product_of(one), device(2), kGiga).set_bytes,
            3 << 20);
}
TEST(CpuMemory, CountsResultsAndWhatIsAddedUpLater) {
  const auto plan_of = [](const Fusion& fusion) {
    Problem p = problem_of_rows({32, 32}, {.fusion = fusion, .n = 512, .k = 1024, .op = Op::dx}, 2);
    return plan_memory(product_of(p), device(2), kGiga);
  };
  const MemoryPlan by_slot = plan_of({.permute_x = true}), summed = plan_of({.permute_x = true, .sum_slots = true});
  EXPECT_EQ(by_slot.partial_bytes, 0);
  EXPECT_EQ(by_slot.set_bytes - summed.set_bytes, 32 * 1024 * 4);  // 32 tokens in place of 64 slots
  EXPECT_EQ(summed.partial_bytes, 64 * 1024 * 4);
  Fusion fusion{.permute_y = true, .topk_weights = true};
  const MemoryPlan weighted = plan_of(fusion);
  fusion.weight_gradient = true;
  EXPECT_EQ(plan_of(fusion).set_bytes - weighted.set_bytes, 64 * 1024 * 4 + 64 * 4 + 2 * Output::kGuardBytes);
  EXPECT_EQ(plan_of(fusion).partial_bytes, 64 * 1024 * 4);
}
TEST(CpuMemory, RefusesWithTheSizeInWords) {
  const Problem p = problem_of_rows({2, 2}, {.n = 8192, .k = 8192}, 1);
  int64_t needed = 0;
  const std::string sentence = out_of_memory(p, kGiga, needed);
  EXPECT_EQ(sentence,
            "the operands, outputs and references take 1.07 GB of memory; 859 MB of 1.07 GB free may be used");
  EXPECT_GT(needed, kGiga);
  EXPECT_LT(needed, kGiga + (16 << 20));
}

}  // namespace
}  // namespace moetune
