// Faults planted into right results: each must be seen, named and placed. And how far a right result may stray.
#include "backend/cpu/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "three_loops.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

using namespace three_loops;

bool says(const Verdict& verdict, const std::string& words) { return verdict.reason.find(words) != std::string::npos; }

/// A right result, spoilt on integer and on random inputs: both comparisons must see it and say all `words`.
template <class Spoil>
void expect_caught(const Problem& problem, const std::vector<std::string>& words, Spoil spoil,
                   const Extras& extras = {}) {
  for (const Values values : {Values::integer, Values::random}) {
    Multiplication m(problem, values, extras);
    m.run(candidate(24, 64, 64, 2));
    const auto verdict = [&] { return values == Values::integer ? m.exact() : m.close(); };
    ASSERT_TRUE(verdict().ok) << verdict().reason;
    spoil(m);
    const Verdict found = verdict();
    EXPECT_FALSE(found.ok) << words[0];
    EXPECT_TRUE(says(found, values == Values::integer ? "integer inputs: " : "random inputs: ")) << found.reason;
    for (const std::string& one : words) EXPECT_TRUE(says(found, one)) << one << " is not in: " << found.reason;
  }
}

/// One rank of four: rows of Y, or slots of dX, that others own.
Problem one_rank(Op op, const Fusion& fusion, int64_t top_k = 4) {
  const Setting setting{.dtype = Dtype::bf16, .fusion = fusion, .n = 400, .k = 104, .ep = 4, .op = op};
  return problem_of("uniform", 30, 16, top_k, setting);
}

void leave_unwritten(Multiplication& m, int64_t row, int64_t column, int64_t count) {
  const int64_t bytes = count * size_bytes(m.product.d.type.dtype);
  for (int64_t i = 0; i < bytes; i += 2) std::memcpy(m.at(row, column) + i, &kUnwritten, 2);
}

class EveryDtype : public testing::TestWithParam<Dtype> {
 protected:
  const Problem problem = plain(Op::fwd, GetParam());  // Y [48, 40]
  Multiplication integers{problem, Values::integer}, randoms{problem, Values::random};
  void SetUp() override {
    for (Multiplication* m : {&integers, &randoms}) m->run(candidate(24, 64, 64, 2));
  }
  double limit() const { return tolerance(randoms.product, randoms.product.d, 56).ulps; }
};
INSTANTIATE_TEST_SUITE_P(Compare, EveryDtype, testing::ValuesIn(kDtypes),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(EveryDtype, AcceptsARightResult) {
  const Verdict exact = integers.exact(), close = randoms.close();
  EXPECT_TRUE(exact.ok && close.ok) << exact.reason << close.reason;
  EXPECT_EQ(exact.elements, 48 * 40);
  EXPECT_EQ(exact.mismatches, 0);
  EXPECT_EQ(exact.reason, "");
  EXPECT_LE(close.max_ulps, limit());
}

TEST_P(EveryDtype, SeesOneWrongBit) {
  const float before = integers.element(9, 33);
  *integers.at(9, 33) ^= std::byte{1};
  const Verdict verdict = integers.exact();
  EXPECT_EQ(verdict.mismatches, 1);
  // Row 9 is the third of expert 2: expert 0 has 7, expert 1 none.
  EXPECT_EQ(verdict.reason, fmt::format("integer inputs: 1 of 1920 elements differ (0 never written), the first at "
                                        "expert 2, row 2, column 33: got {:.9g}, expected {:.9g}",
                                        integers.element(9, 33), before));
}

TEST_P(EveryDtype, SeesAnElementThatWasNeverWritten) {
  leave_unwritten(integers, 47, 39, 1), leave_unwritten(randoms, 47, 39, 1);
  const Verdict exact = integers.exact(), close = randoms.close();
  EXPECT_TRUE(
      says(exact, "1 of 1920 elements differ (1 never written), the first at expert 3, row 20, column 39: got "));
  EXPECT_TRUE(says(close, "random inputs: 1 of 1920 elements are more than ")) << close.reason;
  EXPECT_TRUE(says(close, "(1 never written)")) << close.reason;
  EXPECT_FALSE(std::isfinite(close.max_ulps));
}

TEST_P(EveryDtype, CountsAllWrongElementsFromManyThreads) {
  for (int64_t row = 5; row < 45; ++row) integers.put(row, row % 40, 1e4F);
  const Verdict verdict = integers.exact();
  EXPECT_EQ(verdict.mismatches, 40);
  EXPECT_TRUE(says(verdict, "the first at expert 0, row 5, column 5: got ")) << verdict.reason;
}

// The largest result, off by two units more than the tolerance.
TEST_P(EveryDtype, HoldsRandomInputsToTheirTolerance) {
  int64_t row = 0, column = 0;
  for (int64_t i = 0; i < 48 * 40; ++i)
    if (randoms.element(i / 40, i % 40) > randoms.element(row, column)) row = i / 40, column = i % 40;
  const double value = randoms.wanted.at(row, column).exact;
  const double unit = std::ldexp(1, std::ilogb(value) + 1 - significand_bits(GetParam()));
  randoms.put(row, column, static_cast<float>(value + unit * (limit() + 2)));
  const Verdict verdict = randoms.close();
  EXPECT_TRUE(says(verdict, "1 of 1920 elements are more than ")) << verdict.reason;
  EXPECT_GT(verdict.max_ulps, limit());
  EXPECT_LT(verdict.max_ulps, limit() + 4);
}

TEST_P(EveryDtype, SeesASmallErrorOfEveryElement) {
  const double step = 1 + 3 * tolerance(randoms.product, randoms.product.d, 56).normalised_error;
  for (int64_t row = 0; row < 48; ++row)
    for (int64_t column = 0; column < 40; ++column)
      randoms.put(row, column, static_cast<float>(randoms.wanted.at(row, column).exact * step));
  const Verdict verdict = randoms.close();
  EXPECT_TRUE(says(verdict, "the normalised error is ")) << verdict.reason;
}

TEST_P(EveryDtype, RefusesInfinityForAFiniteResult) {
  randoms.put(0, 0, std::numeric_limits<float>::infinity());
  const Verdict verdict = randoms.close();
  EXPECT_TRUE(says(verdict, "expert 0, row 0, column 0: got inf")) << verdict.reason;
}

TEST(Compare, AcceptsAnOverflowThatIsRight) {
  Multiplication m(plain(Op::fwd, Dtype::fp16), Values::random);
  m.run(candidate(24, 64, 64, 2));
  const Reference wanted = m.unrounded();
  wanted.d.as<float>()[3] = 1e6F;
  m.put(0, 3, std::numeric_limits<float>::infinity());
  const Verdict verdict = compare_close(m.product, m.set, wanted, m.pool);
  EXPECT_LT(verdict.max_ulps, 1) << verdict.reason;
}

TEST(Faults, OfElementsAreNamedByPlace) {
  const auto spoil = [](int64_t row, int64_t column) {
    return [=](Multiplication& m) { m.put(row, column, m.element(row, column) + 4096); };
  };
  expect_caught(plain(Op::dx), {"1 of 2688 elements", "expert 2, row 2, column 33: got "}, spoil(9, 33));
  // Row 85 of dW is row 5 of expert 2, of 40 each.
  expect_caught(plain(Op::dw), {"1 of 8960 elements", "expert 2, row 5, column 33: got "}, spoil(85, 33));
  expect_caught(one_rank(Op::dx, kSummed), {"1 of 3120 elements", "token 7, column 33: got "}, spoil(7, 33));
}

TEST(Faults, OfSwappedRowsAreSeen) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    expect_caught(plain(op), {"expert "},
                  [](Multiplication& m) { std::swap_ranges(m.at(10, 0), m.at(11, 0), m.at(11, 0)); });
}

TEST(Faults, AroundResultsAreNamedByTheirMatrix) {
  const auto before = [](Multiplication& m) { *(m.set.d.data() - 1) ^= std::byte{1}; };
  const auto after = [](Multiplication& m) { *(m.set.d.data() + m.set.d.bytes()) ^= std::byte{1}; };
  expect_caught(plain(Op::fwd), {"1 bytes were written before the start of Y"}, before);
  expect_caught(plain(Op::dw), {"1 bytes were written before the start of dW"}, before);
  expect_caught(plain(Op::dx), {"1 bytes were written after the end of dX"}, after);
  expect_caught(one_rank(Op::dx, kSummed), {"1 bytes were written after the end of dX"}, after);
  expect_caught(one_rank(Op::dx, kWithGradient), {"1 bytes were written before the start of dweights"},
                [](Multiplication& m) { *(m.set.dweights.data() - 1) ^= std::byte{1}; });
  expect_caught(plain(Op::fwd, Dtype::fp32), {" elements ", "; 1 bytes were written before"}, [&](Multiplication& m) {
    m.put(1, 1, 1e9F);
    before(m);
  });
  Multiplication m(plain(Op::fwd), Values::integer);
  *(m.set.d.data() - Output::kGuardBytes) ^= std::byte{1};
  *(m.set.d.data() + m.set.d.bytes() + Output::kGuardBytes - 1) ^= std::byte{1};
  EXPECT_EQ(m.set.d.written_before(), 1);
  EXPECT_EQ(m.set.d.written_after(), 1);
}

TEST(Faults, OfRowsThatNobodyMayWriteAreSeen) {
  const auto spoil = [](int64_t row, int64_t column) { return [=](Multiplication& m) { m.put(row, column, 1); }; };
  const std::string padding = "1 elements were written in rows of padding, the first at row ";
  expect_caught(plain(Op::dx), {padding + "49 of dX, column 55"}, spoil(49, 55), {.more_rows = 2});
  for (const auto& [op, fusion, matrix] :
       {std::tuple(Op::fwd, Fusion{.permute_y = true}, "Y"), std::tuple(Op::dx, Fusion{.permute_x = true}, "dX")}) {
    const std::vector<int32_t> rows = rows_of_slots(product_of(one_rank(op, fusion)));
    const auto foreign = std::find(rows.begin(), rows.end(), -1) - rows.begin();
    expect_caught(one_rank(op, fusion),
                  {fmt::format("1 elements were written in rows of other ranks, the first at row {} of {}, column 5",
                               foreign, matrix)},
                  spoil(foreign, 5));
  }
}

TEST(Faults, OfZerosAreSeen) {
  // Expert 1 has no rows.
  const auto leave = [](Multiplication& m) { leave_unwritten(m, 40, 0, 40 * 56); };
  expect_caught(plain(Op::dw), {"(2240 never written), the first at expert 1, row 0, column 0: got "}, leave);
  expect_caught(plain(Op::dw), {"(2240 never written)"}, leave, {.result_dtype = Dtype::fp32});
  expect_caught(plain(Op::dw), {"expert 1, row 3, column 4: got "}, [](Multiplication& m) { m.put(43, 4, 1e-20F); });
  // A token without rows.
  const Problem p = one_rank(Op::dx, kSummed, 1);
  const std::vector<int64_t> terms = result_terms(product_of(p), product_of(p).d);
  const int64_t token = std::find(terms.begin(), terms.end(), 0) - terms.begin();
  ASSERT_LT(token, 30);
  const std::string place = "token " + std::to_string(token) + ", column ";
  expect_caught(p, {"(104 never written), the first at " + place + "0: got "},
                [&](Multiplication& m) { leave_unwritten(m, token, 0, 104); });
  expect_caught(p, {place + "5: got "}, [&](Multiplication& m) { m.put(token, 5, 1e-20F); });
}

// The results of an expert with few rows are small beside those of one with many: each is held to its own.
TEST(Faults, OfSmallExpertsAreSeenBesideLargeOnes) {
  const Problem p = problem_of_rows({4000, 4}, {.dtype = Dtype::fp32, .n = 8, .k = 8, .op = Op::dw}, 1);
  expect_caught(p, {"expert 1, row 0, column 0: got "}, [](Multiplication& m) {
    m.put(8, 0, m.element(8, 0) + 2e-5F * std::max(1.0F, std::abs(m.element(8, 0))));
  });
}

TEST(Faults, OfMissingWeightsAreSeen) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    expect_caught(plain(op, Dtype::bf16, kWeighted), {"elements "}, [](Multiplication& m) {
      m.product.weighting = Weighting::none;
      m.launch(candidate(24, 64, 64, 2));
      m.product = product_of(plain(m.product.d.matrix == LayerMatrix::y    ? Op::fwd
                                   : m.product.d.matrix == LayerMatrix::dx ? Op::dx
                                                                           : Op::dw,
                                   Dtype::bf16, kWeighted));
    });
}

/// [rows, columns] sums of dX in expert order, neither weighted nor rounded.
std::vector<float> sums_of(Multiplication& m) {
  Product first = before_last_pass(m.product);
  first.d.type = plain_type(Dtype::fp32);
  std::vector<float> sums(static_cast<size_t>(first.d.rows * first.n));
  Matrices matrices = m.matrices();
  matrices.d = sums.data();
  grouped_gemm(first, matrices, cpu_knobs(candidate(24, 64, 64, 2)), m.pool, m.workspace);
  return sums;
}

/// dX anew: value(slot, sum) in place of each local slot's sum.
template <class Value>
auto sum_again(Value value) {
  return [=](Multiplication& m) {
    const std::vector<float> sums = sums_of(m);
    const std::vector<int32_t> rows = rows_of_slots(m.product);
    const int64_t n = m.product.n, top_k = m.product.top_k;
    for (int64_t i = 0; i < m.product.d.rows * n; ++i) {
      float total = 0;
      for (int64_t slot = i / n * top_k; slot < (i / n + 1) * top_k; ++slot)
        if (const int64_t row = rows[slot]; row >= 0) total += value(slot, sums[row * n + i % n]);
      m.put(i / n, i % n, total);
    }
  };
}

TEST(Faults, OfSumsOfSlotsAreSeen) {
  const Problem p = one_rank(Op::dx, kSummed);
  Multiplication right(p, Values::integer);
  const auto rounded = [](float sum) { return round_to(Dtype::bf16, sum); };
  sum_again([=](int64_t, float sum) { return rounded(sum); })(right);
  EXPECT_EQ(right.difference(), "") << "the faults below are not those that they seem";
  const int64_t odd = product_of(p).gather_indices[5];
  for (const float times : {0.0F, 2.0F})  // left out, or added twice
    expect_caught(p, {"elements "},
                  sum_again([=](int64_t slot, float sum) { return rounded(slot == odd ? times * sum : sum); }));
  Multiplication unrounded(p, Values::integer);
  sum_again([](int64_t, float sum) { return sum; })(unrounded);
  EXPECT_FALSE(unrounded.exact().ok) << "added before they are rounded";
}

/// dweights anew: value(weight, sum, element of X) summed up, at the row's slot, or where the row lies.
template <class Value>
auto dot_again(Value value, bool by_slot = true) {
  return [=](Multiplication& m) {
    const std::vector<float> sums = sums_of(m);
    const int64_t n = m.product.n;
    for (int64_t row = 0; row < routed_rows(m.product); ++row) {
      const int32_t slot = m.product.gather_indices[static_cast<size_t>(row)];
      float total = 0;
      for (int64_t i = row * n; i < (row + 1) * n; ++i)
        total += value(m.weights[static_cast<size_t>(slot)], sums[static_cast<size_t>(i)],
                       from_bf16(m.set.x.as<uint16_t>()[i]));
      m.put_dweight(by_slot ? slot : row, total);
    }
  };
}

TEST(Faults, OfTheWeightsGradientAreSeen) {
  const Problem p = one_rank(Op::dx, kWithGradient);
  const auto product = [](float, float sum, float x) { return sum * x; };
  Multiplication right(p, Values::integer);
  right.run(candidate(24, 64, 64, 2));
  for (int64_t slot = 0; slot < right.product.slots; ++slot) right.put_dweight(slot, 0);
  dot_again(product)(right);
  EXPECT_EQ(right.difference(), "") << "the faults below are not those that they seem";
  const std::string words = "elements of dweights ";
  expect_caught(p, {words}, dot_again([](float weight, float sum, float x) { return weight * sum * x; }));
  expect_caught(p, {words}, dot_again([](float, float sum, float x) { return round_to(Dtype::bf16, sum) * x; }));
  expect_caught(p, {words}, dot_again(product, false));

  const std::vector<int32_t> rows = rows_of_slots(product_of(p));
  const auto local = std::find_if(rows.begin(), rows.end(), [](int32_t row) { return row >= 0; }) - rows.begin();
  const auto foreign = std::find(rows.begin(), rows.end(), -1) - rows.begin();
  expect_caught(p, {"1 of 120 elements of dweights ", "slot " + std::to_string(local) + ": got "},
                [&](Multiplication& m) { m.put_dweight(local, m.dweight(local) + 1024); });
  const std::string place = "the first at slot " + std::to_string(foreign) + ": got ";
  expect_caught(p, {place}, [&](Multiplication& m) { m.put_dweight(foreign, 1e-30F); });
  expect_caught(p, {"(1 never written), " + place}, [&](Multiplication& m) {
    std::fill_n(reinterpret_cast<uint16_t*>(m.set.dweights.data() + foreign * 4), 2, kUnwritten);
  });
  // The errors of a verdict are those of D, unless dweights alone are wrong.
  Multiplication m(p, Values::random);
  m.run(candidate(24, 64, 64, 2));
  EXPECT_LE(m.close().max_ulps, tolerance(m.product, m.product.d, m.product.k).ulps);
  m.put_dweight(local, 1e9F);
  EXPECT_GT(m.close().max_ulps, 1e3);
}

TEST(Tolerance, IsOfOneRoundingOrTwo) {
  Product product;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    product.d.type = plain_type(dtype);
    product.weighting = Weighting::none;
    const Tolerance once = tolerance(product, product.d, 4096);
    product.weighting = Weighting::rounded_result;
    const Tolerance twice = tolerance(product, product.d, 4096);
    EXPECT_GT(once.ulps, 0.5);
    EXPECT_LT(once.ulps, 0.55);
    EXPECT_GT(twice.ulps, 1.5);
    EXPECT_LT(twice.ulps, 1.55);
    EXPECT_LT(once.normalised_error, 1.1 * std::ldexp(1, -significand_bits(dtype)));
    EXPECT_NEAR(twice.normalised_error, 2 * once.normalised_error, 0.1 * once.normalised_error);
  }
  product.d.type = plain_type(Dtype::fp32);
  EXPECT_LT(tolerance(product, product.d, 4096).normalised_error, 1e-5);
}

// Of 2^32 sums of few products some hold two of about 11 times the rms that nearly cancel out: the rounding errors are
// those of the larger sums on the way.
TEST(Tolerance, HoldsForSumsOfFewProducts) {
  Product product;
  product.d.type = plain_type(Dtype::fp32);
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  const auto factor = [&] { return round_to(Dtype::fp16, normal(generator)); };
  for (const int terms : {6, 8}) {
    double worst = 0;
    for (int i = 0; i < 10'000; ++i) {
      std::vector<float> products(static_cast<size_t>(terms));
      for (float& one : products) one = factor() * factor();
      products.front() += 11, products.back() -= 11;
      const float sum = std::accumulate(products.begin(), products.end(), 0.0F);
      const double right = std::accumulate(products.begin(), products.end(), 0.0);
      const double ulp = std::ldexp(1, std::ilogb(std::max(std::abs(right), std::sqrt(terms))) - 23);
      worst = std::max(worst, std::abs(static_cast<double>(sum) - right) / ulp);
    }
    EXPECT_GT(worst, 0.5 + 2.5 * std::sqrt(terms)) << "no such sums here";
    EXPECT_LT(worst, tolerance(product, product.d, terms).ulps);
  }
}

TEST(Output, IsNaNAllOver) {
  ThreadPool pool(2);
  for (const Dtype dtype : kDtypes) {
    const Output output(30, 1000, dtype);
    output.reset(pool);
    std::vector<float> values(30 * 1000);
    to_floats(dtype, output.data(), 30 * 1000, values.data());
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); }));
    EXPECT_EQ(output.written_before() + output.written_after(), 0);
  }
}

TEST(FirstDifference, IsTheFirstByteWithOtherBits) {
  const Multiplication m(plain(Op::fwd), Values::random);
  std::byte* data = m.set.d.data();
  const std::vector<std::byte> earlier(data, data + m.set.d.bytes());
  EXPECT_EQ(first_difference(m.set.d, earlier), std::nullopt);
  data[m.set.d.bytes() - 1] ^= std::byte{1};
  EXPECT_EQ(first_difference(m.set.d, earlier), m.set.d.bytes() - 1);
  data[7] ^= std::byte{0x80};
  EXPECT_EQ(first_difference(m.set.d, earlier), 7);
}

}  // namespace
}  // namespace moetune
