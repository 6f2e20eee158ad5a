// dX summed over the slots of a token and the weights' gradient: faults planted into right results, and sizes beyond
// what the second pass takes at once.
#include <gtest/gtest.h>

#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;
using naive::candidate;

constexpr int64_t kN = 104;  // columns of dX

Problem one_rank(const Fusion& fusion, int64_t top_k = 4) {
  return naive::problem_of("uniform", 30, 16, top_k,
                           {.dtype = Dtype::bf16, .fusion = fusion, .n = 400, .k = kN, .ep = 4, .op = Op::dx});
}

void run_variant(Multiplication& run, Workspace& workspace) {
  reset_output(run.product, run.set, run.pool);
  grouped_gemm(run.product, run.matrices(), cpu_knobs(candidate(24, 64, 64, 2)), microkernel(), run.pool, workspace);
}

// A right result, spoilt on integer and on random inputs: both comparisons must see it and say `words`.
template <class Spoil>
void expect_caught(const Problem& problem, const std::string& words, Spoil spoil) {
  for (const Values values : {Values::integer, Values::random}) {
    Multiplication run(problem, values);
    const auto verdict = [&] { return values == Values::integer ? run.exact() : run.close(); };
    Workspace workspace;
    run_variant(run, workspace);
    ASSERT_TRUE(verdict().ok) << verdict().reason;
    spoil(run);
    EXPECT_FALSE(verdict().ok) << words;
    EXPECT_NE(verdict().reason.find(words), std::string::npos) << verdict().reason;
  }
}

/// [rows, kN] sums of dX in expert order, neither weighted nor rounded.
std::vector<float> sums_of(Multiplication& run) {
  Product plain = run.product;
  plain.weighting = Weighting::none;
  plain.weight_gradient.reset();
  plain.d.order = RowOrder::in_place, plain.d.type = plain_type(Dtype::fp32), plain.d.rows = routed_rows(plain);
  std::vector<float> sums(static_cast<size_t>(plain.d.rows * kN));
  Matrices matrices = run.matrices();
  matrices.d = sums.data();
  LoopWorkspace workspace;
  loop_baseline(plain, matrices, run.pool, workspace);
  return sums;
}

/// dX anew: value(slot, sum) in place of each local slot's sum.
template <class Value>
void sum_again(Multiplication& run, Value value) {
  const std::vector<float> sums = sums_of(run);
  const std::vector<int32_t> rows = rows_of_slots(run.product);
  for (int64_t token = 0; token < run.product.d.rows; ++token)
    for (int64_t column = 0; column < kN; ++column) {
      float total = 0;
      for (int64_t slot = token * run.product.top_k; slot < (token + 1) * run.product.top_k; ++slot)
        if (rows[slot] >= 0) total += value(slot, sums[rows[slot] * kN + column]);
      run.put(token, column, total);
    }
}

/// dweights anew: value(row, sum, element of X) summed up, at place(row).
template <class Value, class Place>
void dot_again(Multiplication& run, Value value, Place place) {
  const std::vector<float> sums = sums_of(run);
  for (int64_t row = 0; row < routed_rows(run.product); ++row) {
    float total = 0;
    for (int64_t i = row * kN; i < (row + 1) * kN; ++i)
      total += value(row, sums[i], from_bf16(run.set.x.as<uint16_t>()[i]));
    run.put_dweight(place(row), total);
  }
}

int64_t first_slot(const Product& product, bool local) {
  const std::vector<int32_t> rows = rows_of_slots(product);
  return std::find_if(rows.begin(), rows.end(), [&](int32_t row) { return (row >= 0) == local; }) - rows.begin();
}

TEST(SummedSlots, AreMadeAgainByTheseTests) {
  Multiplication run(one_rank(kSummed), Values::integer);
  reset_output(run.product, run.set, run.pool);
  sum_again(run, [](int64_t, float sum) { return sum; });
  EXPECT_EQ(run.difference(), "");
}
TEST(SummedSlots, FaultsAreNamedByTokenAndColumn) {
  const auto spoil = [](Multiplication& s) { s.put(7, 33, s.element(7, 33) + 4096); };
  expect_caught(one_rank(kSummed), "1 of 3120 elements", spoil);
  expect_caught(one_rank(kSummed), "token 7, column 33: got ", spoil);
}
TEST(SummedSlots, OfTokensWithoutRowsMustBeZeros) {
  const Problem p = one_rank(kSummed, 1);
  const std::vector<int64_t> terms = result_terms(product_of(p), product_of(p).d);
  const int64_t token = std::find(terms.begin(), terms.end(), 0) - terms.begin();
  ASSERT_LT(token, 30);
  const std::string place = "token " + std::to_string(token) + ", column ";
  expect_caught(p, "(104 never written), the first at " + place + "0: got ", [&](Multiplication& s) {
    for (int64_t column = 0; column < kN; ++column)
      std::memcpy(s.set.d.data() + (token * kN + column) * 2, &kUnwritten, 2);
  });
  expect_caught(p, place + "5: got ", [&](Multiplication& s) { s.put(token, 5, 1e-20f); });
}
TEST(SummedSlots, ThatAreLeftOutOrAddedTwiceAreSeen) {
  for (const float times : {0.0f, 2.0f})
    expect_caught(one_rank(kSummed), "elements ", [&](Multiplication& s) {
      const int64_t odd = first_slot(s.product, true);
      sum_again(s, [&](int64_t slot, float sum) { return slot == odd ? times * sum : sum; });
    });
}
TEST(SummedSlots, ThatAreRoundedBeforeTheyAreAddedAreSeen) {
  expect_caught(one_rank(kSummed), "elements ",
                [](Multiplication& s) { sum_again(s, [](int64_t, float sum) { return round_to(Dtype::bf16, sum); }); });
}
TEST(SummedSlots, GuardsAreLookedAt) {
  expect_caught(one_rank(kSummed), "1 bytes were written after the end of dX",
                [](Multiplication& s) { *(s.set.d.data() + s.set.d.bytes()) ^= std::byte{1}; });
}

TEST(WeightGradient, IsMadeAgainByTheseTests) {
  Multiplication run(one_rank(kWithGradient), Values::integer);
  Workspace workspace;
  run_variant(run, workspace);
  for (int64_t slot = 0; slot < run.product.slots; ++slot) run.put_dweight(slot, 0);
  dot_again(
      run, [](int64_t, float sum, float x) { return sum * x; },
      [&](int64_t row) { return run.product.gather_indices[row]; });
  EXPECT_EQ(run.difference(), "");
}
TEST(WeightGradient, FaultsAreNamedBySlot) {
  const int64_t slot = first_slot(product_of(one_rank(kWithGradient)), true);
  const auto spoil = [&](Multiplication& s) { s.put_dweight(slot, s.dweight(slot) + 1024); };
  expect_caught(one_rank(kWithGradient), "1 of 120 elements of dweights ", spoil);
  expect_caught(one_rank(kWithGradient), "slot " + std::to_string(slot) + ": got ", spoil);
}
TEST(WeightGradient, OfSlotsWithoutRowsMustBeZeros) {
  const int64_t slot = first_slot(product_of(one_rank(kWithGradient)), false);
  const std::string place = "the first at slot " + std::to_string(slot) + ": got ";
  expect_caught(one_rank(kWithGradient), "(1 never written), " + place, [&](Multiplication& s) {
    std::memcpy(s.set.dweights.data() + slot * 4, &kUnwritten, 2);
    std::memcpy(s.set.dweights.data() + slot * 4 + 2, &kUnwritten, 2);
  });
  expect_caught(one_rank(kWithGradient), place, [&](Multiplication& s) { s.put_dweight(slot, 1e-30f); });
}
TEST(WeightGradient, OfWeightedSumsIsSeen) {
  expect_caught(one_rank(kWithGradient), "elements of dweights ", [](Multiplication& s) {
    const auto slot = [&](int64_t row) { return s.product.gather_indices[row]; };
    dot_again(
        s, [&](int64_t row, float sum, float x) { return s.weights[slot(row)] * sum * x; }, slot);
  });
}
TEST(WeightGradient, OfRoundedSumsIsSeen) {
  expect_caught(one_rank(kWithGradient), "elements of dweights ", [](Multiplication& s) {
    dot_again(
        s, [](int64_t, float sum, float x) { return round_to(Dtype::bf16, sum) * x; },
        [&](int64_t row) { return s.product.gather_indices[row]; });
  });
}
TEST(WeightGradient, InExpertOrderIsSeen) {
  expect_caught(one_rank(kWithGradient), "elements of dweights ", [](Multiplication& s) {
    dot_again(
        s, [](int64_t, float sum, float x) { return sum * x; }, [](int64_t row) { return row; });
  });
}
TEST(WeightGradient, GuardsAreLookedAt) {
  expect_caught(one_rank(kWithGradient), "1 bytes were written before the start of dweights",
                [](Multiplication& s) { *(s.set.dweights.data() - 1) ^= std::byte{1}; });
}
TEST(WeightGradient, ErrorsThatAreToldAreThoseOfD) {
  Multiplication run(one_rank(kWithGradient), Values::random);
  Workspace workspace;
  run_variant(run, workspace);
  EXPECT_LE(run.close().max_ulps, tolerance(run.product, run.product.d, run.product.k).ulps);
  run.put_dweight(first_slot(run.product, true), 1e9f);
  EXPECT_GT(run.close().max_ulps, 1e3);
}

// More columns, tokens and slots than the second pass takes at once; memory that launches of other sizes have used.
TEST(SecondPass, TakesAnySizes) {
  Workspace workspace;
  LoopWorkspace loop_workspace;
  for (const int64_t k : {int64_t{1100}, int64_t{77}})
    for (const Fusion& fusion : {kSummed, kWithGradient})
      for (const Values values : {Values::integer, Values::random}) {
        const Setting setting{.dtype = Dtype::bf16, .fusion = fusion, .n = 24, .k = k, .ep = 2, .op = Op::dx};
        Product product = product_of(naive::problem_of("zipf:1", 300, 8, 4, setting));
        ThreadPool pool(3);
        const OperandSet set = make_set(product, values, pool);
        const std::vector<float> weights = make_topk_weights(product, values);
        const Matrices matrices = matrices_of(set, weights);
        const bool exact = values == Values::integer;
        const Reference wanted =
            exact ? rounded_reference(product, matrices, pool) : unrounded_reference(product, matrices, pool);
        const auto expect_right = [&](const std::string& who) {
          const Verdict verdict =
              exact ? compare_exact(product, set, wanted, pool) : compare_close(product, set, wanted, pool);
          EXPECT_TRUE(verdict.ok) << who << " " << text(fusion) << " k " << k << ": " << verdict.reason;
        };
        reset_output(product, set, pool);
        grouped_gemm(product, matrices, cpu_knobs(candidate(24, 64, 64, 2)), microkernel(), pool, workspace);
        expect_right("variant");
        reset_output(product, set, pool);
        loop_baseline(product, matrices, pool, loop_workspace);
        expect_right("baseline");
      }
}

}  // namespace
}  // namespace moetune
