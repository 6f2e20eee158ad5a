// dX and dW, and what a product may have beside the ops of today: reference, baseline and comparison against three
// loops.
#include <gtest/gtest.h>

#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;

INSTANTIATE_TEST_SUITE_P(Product, EveryGradient, testing::ValuesIn(gradients()),
                         [](const auto& test) { return label(test.param); });

// n, k: smaller and larger than what the loops of the baseline take at once.
constexpr std::pair<int64_t, int64_t> kSides[] = {{1, 1}, {7, 33}, {49, 13}, {66, 70}};

TEST_P(EveryGradient, BaselineEqualsThreeLoopsOnIntegers) {
  for (const auto& [n, k] : kSides)
    on_routings(n, k, [](const Problem& problem) {
      Multiplication run(problem, Values::integer);
      run.run_loop();
      EXPECT_EQ(run.difference(), "");
      const Verdict verdict = run.exact();
      EXPECT_TRUE(verdict.ok) << verdict.reason;
      EXPECT_EQ(verdict.elements, run.elements());
    });
}

TEST_P(EveryGradient, BaselineIsCloseOnRandomInputs) {
  on_routings(66, 70, [](const Problem& problem) {
    Multiplication run(problem, Values::random);
    run.run_loop();
    const Verdict verdict = run.close();
    EXPECT_TRUE(verdict.ok) << verdict.reason;
  });
}

TEST_P(EveryGradient, ReferenceEqualsThreeLoops) {
  for (const Values values : {Values::integer, Values::random})
    on_routings(19, 37, [&](const Problem& problem) {
      Multiplication run(problem, values);
      const Product& product = run.product;
      const Reference rounded = run.rounded(), unrounded = run.unrounded();
      const std::vector<int64_t> rows = result_map(product, product.d);
      const auto written = std::count_if(run.wanted.elements.begin(), run.wanted.elements.end(),
                                         [](const auto& element) { return element.has_value(); });
      ASSERT_EQ(static_cast<int64_t>(rows.size()) * product.d.columns, written);
      for (size_t row = 0; row < rows.size(); ++row)
        for (int64_t column = 0; column < product.d.columns; ++column) {
          const Element want = run.wanted.at(rows[row], column);
          // Sums of slots are in double, which of random inputs is not the fp32 sum.
          if (values == Values::integer || !sums_slots(product)) {
            ASSERT_EQ(run.read(rounded.d.data(), static_cast<int64_t>(row), column), want.rounded);
          }
          ASSERT_FLOAT_EQ(unrounded.d.as<float>()[static_cast<int64_t>(row) * product.d.columns + column],
                          static_cast<float>(want.exact));
        }
      for (size_t slot = 0; slot < run.wanted.dweights.size(); ++slot) {
        ASSERT_FLOAT_EQ(rounded.dweights.as<float>()[slot], static_cast<float>(run.wanted.dweights[slot]));
        ASSERT_FLOAT_EQ(unrounded.dweights.as<float>()[slot], static_cast<float>(run.wanted.dweights[slot]));
      }
    });
}

// What no option of the command line asks for yet.

class EveryOp : public testing::TestWithParam<Op> {
 protected:
  static void expect_right(const Problem& problem, const Extras& extras) {
    for (const Values values : {Values::integer, Values::random}) {
      Multiplication run(problem, values, extras);
      run.run_loop();
      if (values == Values::integer) {
        EXPECT_EQ(run.difference(), "");
      }
      const Verdict verdict = values == Values::integer ? run.exact() : run.close();
      EXPECT_TRUE(verdict.ok) << verdict.reason;
      const Reference rounded = rounded_reference(run.product, run.matrices(), run.pool);
      const std::vector<int64_t> rows = row_map(run.product, run.product.d);
      for (size_t row = 0; row < rows.size(); ++row)
        for (int64_t column = 0; column < run.product.d.columns; ++column)
          ASSERT_EQ(run.read(rounded.d.data(), static_cast<int64_t>(row), column),
                    run.wanted.at(rows[row], column).rounded);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Product, EveryOp, testing::Values(Op::fwd, Op::dx, Op::dw),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(EveryOp, HasAResultDtypeOfItsOwn) {
  expect_right(plain(GetParam()), {.result_dtype = Dtype::fp32});
  expect_right(plain(GetParam(), Dtype::fp32), {.result_dtype = Dtype::fp16});
}
TEST_P(EveryOp, TakesMoreRowsInMemoryThanExpertsOwn) { expect_right(plain(GetParam()), {.more_rows = 9}); }
TEST_P(EveryOp, TakesRowsPaddedToACapacity) {
  expect_right(plain(GetParam()), {.capacity = 21});
  expect_right(plain(GetParam(), Dtype::fp16), {.capacity = 64});
}
TEST_P(EveryOp, TakesScalesBesideItsOperands) {
  expect_right(plain(GetParam()), {.a_scale = block_scales(1, 16)});
  expect_right(plain(GetParam()), {.b_scale = block_scales(16, 16)});
  expect_right(plain(GetParam(), Dtype::fp32), {.a_scale = block_scales(4, 7), .b_scale = block_scales(9, 64)});
}
TEST_P(EveryOp, TakesAllOfThemAtOnce) {
  expect_right(
      plain(GetParam()),
      {.capacity = 30, .result_dtype = Dtype::fp32, .a_scale = block_scales(1, 8), .b_scale = block_scales(8, 8)});
}
TEST(Dw, SumsOverMoreTermsThanThePanelsHold) {
  constexpr int32_t kRows = (1 << 16) + 100;
  const Problem p = naive::problem_of_rows({kRows, 3}, {.dtype = Dtype::fp32, .n = 2, .k = 3, .op = Op::dw}, 1);
  Multiplication run(p, Values::integer);
  run.run_loop();
  EXPECT_EQ(run.difference(), "");
  const Verdict verdict = run.exact();
  EXPECT_TRUE(verdict.ok) << verdict.reason;
}

// Faults planted into right results.

bool says(const Verdict& verdict, const std::string& words) { return verdict.reason.find(words) != std::string::npos; }

// A right result, spoilt on integer and on random inputs: both comparisons must see it and say `words`.
template <class Spoil>
void expect_caught(const Problem& problem, const Extras& extras, const std::string& words, Spoil spoil) {
  for (const Values values : {Values::integer, Values::random}) {
    Multiplication run(problem, values, extras);
    run.run_loop();
    const auto verdict = [&] { return values == Values::integer ? run.exact() : run.close(); };
    ASSERT_TRUE(verdict().ok) << verdict().reason;
    spoil(run);
    EXPECT_FALSE(verdict().ok);
    EXPECT_TRUE(says(verdict(), words)) << verdict().reason;
  }
}

TEST(Faults, OfOneElementAreNamedByExpertRowAndColumn) {
  // Row 9 of dX is the third of expert 2: expert 0 has 7, expert 1 none.
  expect_caught(plain(Op::dx), {}, "1 of 2688 elements",
                [](Multiplication& s) { s.put(9, 33, s.element(9, 33) + 64); });
  expect_caught(plain(Op::dx), {}, "expert 2, row 2, column 33: got ",
                [](Multiplication& s) { s.put(9, 33, s.element(9, 33) + 64); });
  // Row 85 of dW is row 5 of expert 2, of 40 each.
  expect_caught(plain(Op::dw), {}, "1 of 8960 elements",
                [](Multiplication& s) { s.put(85, 33, s.element(85, 33) + 64); });
  expect_caught(plain(Op::dw), {}, "expert 2, row 5, column 33: got ",
                [](Multiplication& s) { s.put(85, 33, s.element(85, 33) + 64); });
}
TEST(Faults, OfOneBitAreSeenOnIntegers) {
  for (const Op op : {Op::dx, Op::dw}) {
    Multiplication run(plain(op), Values::integer);
    run.run_loop();
    *run.set.d.data() ^= std::byte{1};
    EXPECT_EQ(run.exact().mismatches, 1);
  }
}
TEST(Faults, OfUnwrittenZerosAreSeen) {
  const auto leave_expert_1 = [](Multiplication& s) {
    const int64_t bytes = 40 * 56 * size_bytes(s.product.d.type.dtype);
    for (int64_t i = 0; i < bytes / 2; ++i) std::memcpy(s.set.d.data() + bytes + 2 * i, &kUnwritten, 2);
  };
  expect_caught(plain(Op::dw), {}, "(2240 never written), the first at expert 1, row 0, column 0: got ",
                leave_expert_1);
  expect_caught(plain(Op::dw), {.result_dtype = Dtype::fp32}, "(2240 never written)", leave_expert_1);
}
TEST(Faults, OfSmallValuesInPlaceOfZerosAreSeen) {
  expect_caught(plain(Op::dw), {}, "expert 1, row 3, column 4: got ", [](Multiplication& s) { s.put(43, 4, 1e-20f); });
}
TEST(Faults, OfAWrittenRowOfPaddingAreSeen) {
  // Row 7 is the first behind the rows of expert 0.
  expect_caught(plain(Op::dx), {.capacity = 25},
                "1 elements were written in rows of padding, the first at row 7 of dX, column 3",
                [](Multiplication& s) { s.put(7, 3, 0); });
  expect_caught(plain(Op::fwd), {.capacity = 25},
                "1 elements were written in rows of padding, the first at row 25 of Y, column 0",
                [](Multiplication& s) { s.put(25, 0, 1); });
  expect_caught(plain(Op::dx), {.more_rows = 2},
                "1 elements were written in rows of padding, the first at row 49 of dX, column 55",
                [](Multiplication& s) { s.put(49, 55, 1); });
}
TEST(Faults, OfRowsOfOtherRanksAreSeen) {
  const Problem p =
      naive::problem_of("uniform", 30, 16, 4, {.fusion = {.permute_x = true}, .n = 24, .k = 32, .ep = 4, .op = Op::dx});
  std::vector<bool> owned(static_cast<size_t>(naive::slots(p)));
  for (const int32_t slot : p.routing.gather_indices) owned[static_cast<size_t>(slot)] = true;
  const auto foreign = std::find(owned.begin(), owned.end(), false) - owned.begin();
  expect_caught(p, {},
                "1 elements were written in rows of other ranks, the first at row " + std::to_string(foreign) +
                    " of dX, column 5",
                [&](Multiplication& s) { s.put(foreign, 5, 0); });
}
TEST(Faults, AroundTheResultAreNamedByItsMatrix) {
  expect_caught(plain(Op::dw), {}, "1 bytes were written before the start of dW",
                [](Multiplication& s) { *(s.set.d.data() - 1) ^= std::byte{1}; });
  expect_caught(plain(Op::dx), {}, "1 bytes were written after the end of dX",
                [](Multiplication& s) { *(s.set.d.data() + s.set.d.bytes()) ^= std::byte{1}; });
}
// The results of an expert with few rows are small beside those of one with many: each is held to its own.
TEST(Faults, OfSmallExpertsAreSeenBesideLargeOnes) {
  const Problem p = naive::problem_of_rows({4000, 4}, {.dtype = Dtype::fp32, .n = 8, .k = 8, .op = Op::dw}, 1);
  expect_caught(p, {}, "expert 1, row 0, column 0: got ", [](Multiplication& s) {
    s.put(8, 0, s.element(8, 0) + 2e-5f * std::max(1.0f, std::abs(s.element(8, 0))));
  });
}
// dW without the weights, or with those of the result.
TEST(Faults, OfMissingWeightsAreSeen) {
  for (const Op op : {Op::dx, Op::dw})
    expect_caught(plain(op, Dtype::bf16, {.permute_y = true, .topk_weights = true}), {}, "elements ",
                  [](Multiplication& s) {
                    Product unweighted = s.product;
                    unweighted.weighting = Weighting::none;
                    LoopWorkspace workspace;
                    loop_baseline(unweighted, s.matrices(), s.pool, workspace);
                  });
}

}  // namespace
}  // namespace moetune
