// Faults planted into a right result: each must be seen, named and placed.
#include "backend/cpu/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "naive.h"

namespace moetune {
namespace {

using naive::Setting;

constexpr int64_t kN = 40;
constexpr Dtype kDtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};

/// A right result, its references, and a way to spoil it.
class Result {
 public:
  explicit Result(const Problem& p)
      : problem(p), product(product_of(p)), output(naive::y_rows(p), p.shape.layer.n, p.shape.layer.dtype) {
    const Layer& layer = p.shape.layer;
    const naive::Operands operands(p, Values::random);
    const naive::Matrix y = naive::multiply(p, operands);
    output.reset(pool);
    wanted.resize(static_cast<size_t>(p.rows() * layer.n) * static_cast<size_t>(size_bytes(layer.dtype)));
    const int64_t row_bytes = layer.n * size_bytes(layer.dtype);
    naive::for_rows(p, [&](int64_t expert, int64_t row, int64_t target) {
      std::memcpy(output.data() + target * row_bytes, y.bytes.data() + target * row_bytes,
                  static_cast<size_t>(row_bytes));
      std::memcpy(wanted.data() + row * row_bytes, y.bytes.data() + target * row_bytes, static_cast<size_t>(row_bytes));
      const float weight =
          p.shape.fusion.topk_weights ? round_to(layer.dtype, operands.weights[p.routing.gather_indices[row]]) : 1;
      for (int64_t column = 0; column < layer.n; ++column)
        values.push_back(static_cast<float>(naive::sum_at(p, operands, expert, row, column) * weight));
    });
  }
  Verdict exact() { return compare_exact(product, product.d, output, wanted.data(), pool); }
  Verdict close() { return compare_close(product, product.d, output, values.data(), pool); }
  std::byte* element(int64_t row, int64_t column) {
    const Layer& layer = problem.shape.layer;
    return output.data() + (row * layer.n + column) * size_bytes(layer.dtype);
  }
  void put(int64_t row, int64_t column, float value) {
    naive::Matrix one(problem.shape.layer.dtype, 1);
    one.set(0, value);
    std::memcpy(element(row, column), one.bytes.data(), one.bytes.size());
  }
  float value(int64_t row, int64_t column) {
    naive::Matrix one(problem.shape.layer.dtype, 1);
    std::memcpy(one.bytes.data(), element(row, column), one.bytes.size());
    return one.get(0);
  }

  Problem problem;
  Product product;
  ThreadPool pool{3};
  Output output;
  std::vector<std::byte> wanted;  // [rows, n] in the dtype
  std::vector<float> values;      // [rows, n] unrounded
};

Problem plain_problem(Dtype dtype, Fusion fusion = {}) {
  return naive::problem_of_rows({7, 0, 20, 21}, {.dtype = dtype, .fusion = fusion, .n = kN, .k = 64}, 2);
}

/// One rank of four: rows of Y that others own.
Problem shared_problem(Dtype dtype) {
  return naive::problem_of("uniform", 30, 16, 4,
                           {.dtype = dtype, .fusion = {.permute_y = true}, .n = kN, .k = 32, .ep = 4});
}

bool says(const Verdict& verdict, const std::string& words) { return verdict.reason.find(words) != std::string::npos; }

class EveryDtype : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Compare, EveryDtype, testing::ValuesIn(kDtypes),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(EveryDtype, AcceptsARightResult) {
  for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true},
                               Fusion{.permute_y = true, .topk_weights = true}}) {
    Result result(plain_problem(GetParam(), fusion));
    const Verdict exact = result.exact(), close = result.close();
    EXPECT_TRUE(exact.ok) << exact.reason;
    EXPECT_TRUE(close.ok) << close.reason;
    EXPECT_EQ(exact.elements, 48 * kN);
    EXPECT_EQ(exact.mismatches, 0);
    EXPECT_EQ(exact.reason, "");
    EXPECT_LE(close.max_ulps, tolerance(result.product, result.product.d, 64).ulps);
  }
}

TEST_P(EveryDtype, SeesOneWrongBit) {
  Result result(plain_problem(GetParam()));
  const float before = result.value(9, 33);
  *result.element(9, 33) ^= std::byte{1};
  const Verdict verdict = result.exact();
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.mismatches, 1);
  EXPECT_TRUE(says(verdict, "integer inputs: 1 of 1920 elements differ (0 never written)")) << verdict.reason;
  // Row 9 is the third of expert 2: expert 0 has 7, expert 1 none.
  EXPECT_TRUE(says(verdict,
                   fmt::format("expert 2, row 2, column 33: got {:.9g}, expected {:.9g}", result.value(9, 33), before)))
      << verdict.reason;
}

TEST_P(EveryDtype, SeesAnElementThatWasNeverWritten) {
  Result result(plain_problem(GetParam()));
  std::memset(result.element(47, kN - 1), 0, static_cast<size_t>(size_bytes(GetParam())));
  for (int64_t half = 0; half < size_bytes(GetParam()) / 2; ++half)
    std::memcpy(result.element(47, kN - 1) + 2 * half, &kUnwritten, 2);
  const Verdict exact = result.exact(), close = result.close();
  EXPECT_FALSE(exact.ok);
  EXPECT_TRUE(
      says(exact, "1 of 1920 elements differ (1 never written), the first at expert 3, row 20, column 39: got "))
      << exact.reason;
  EXPECT_FALSE(close.ok);
  EXPECT_TRUE(says(close, "random inputs: 1 of 1920 elements are more than ")) << close.reason;
  EXPECT_TRUE(says(close, "(1 never written)")) << close.reason;
  EXPECT_FALSE(std::isfinite(close.max_ulps));
}

TEST_P(EveryDtype, SeesSwappedRows) {
  Result result(plain_problem(GetParam()));
  std::swap_ranges(result.element(10, 0), result.element(11, 0), result.element(11, 0));
  const Verdict exact = result.exact(), close = result.close();
  EXPECT_FALSE(exact.ok);
  EXPECT_GT(exact.mismatches, kN);
  EXPECT_TRUE(says(exact, "expert 2, row 3, column 0")) << exact.reason;
  EXPECT_FALSE(close.ok);
  EXPECT_GT(close.normalised_error, 0.1);
}

TEST_P(EveryDtype, SeesBytesAroundY) {
  for (const bool before : {true, false}) {
    Result result(plain_problem(GetParam()));
    std::byte* guard = before ? result.output.data() - 1 : result.output.data() + result.output.bytes();
    *guard ^= std::byte{0xff};
    for (const Verdict& verdict : {result.exact(), result.close()}) {
      EXPECT_FALSE(verdict.ok);
      EXPECT_TRUE(says(
          verdict, before ? "1 bytes were written before the start of Y" : "1 bytes were written after the end of Y"))
          << verdict.reason;
    }
  }
}

TEST_P(EveryDtype, SeesTheLastByteOfTheGuards) {
  Result result(plain_problem(GetParam()));
  result.output.data()[-Output::kGuardBytes] ^= std::byte{1};
  result.output.data()[result.output.bytes() + Output::kGuardBytes - 1] ^= std::byte{1};
  EXPECT_EQ(result.output.written_before(), 1);
  EXPECT_EQ(result.output.written_after(), 1);
}

TEST_P(EveryDtype, SeesRowsOfOtherRanks) {
  Result result(shared_problem(GetParam()));
  ASSERT_TRUE(result.exact().ok) << result.exact().reason;
  std::vector<bool> owned(static_cast<size_t>(naive::y_rows(result.problem)));
  for (const int32_t slot : result.problem.routing.gather_indices) owned[static_cast<size_t>(slot)] = true;
  const auto foreign = std::find(owned.begin(), owned.end(), false) - owned.begin();
  result.put(foreign, 3, 0);
  for (const Verdict& verdict : {result.exact(), result.close()}) {
    EXPECT_FALSE(verdict.ok);
    EXPECT_TRUE(says(
        verdict,
        fmt::format("1 elements were written in rows of other ranks, the first at row {} of Y, column 3", foreign)))
        << verdict.reason;
  }
}

TEST_P(EveryDtype, CountsAllWrongElementsFromManyThreads) {
  Result result(plain_problem(GetParam()));
  for (int64_t row = 5; row < 45; ++row) result.put(row, row % kN, 1e4f);
  const Verdict verdict = result.exact();
  EXPECT_EQ(verdict.mismatches, 40);
  EXPECT_TRUE(says(verdict, "the first at expert 0, row 5, column 5: got ")) << verdict.reason;
}

TEST_P(EveryDtype, HoldsRandomInputsToTheirTolerance) {
  Result result(plain_problem(GetParam()));
  // The largest result, off by two units more than the tolerance.
  const auto largest_value = std::max_element(result.values.begin(), result.values.end());
  const auto largest = largest_value - result.values.begin();
  const float value = *largest_value;
  const double unit = std::ldexp(1, std::ilogb(value) + 1 - significand_bits(GetParam()));
  const double limit = tolerance(result.product, result.product.d, 64).ulps;
  result.put(largest / kN, largest % kN, static_cast<float>(value + unit * (limit + 2)));
  const Verdict verdict = result.close();
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(says(verdict, "1 of 1920 elements are more than ")) << verdict.reason;
  EXPECT_GT(verdict.max_ulps, limit);
  EXPECT_LT(verdict.max_ulps, limit + 4);
}

TEST_P(EveryDtype, SeesASmallErrorOfEveryElement) {
  Result result(plain_problem(GetParam()));
  const double step = 1 + 3 * tolerance(result.product, result.product.d, 64).normalised_error;
  for (int64_t row = 0; row < 48; ++row)
    for (int64_t column = 0; column < kN; ++column)
      result.put(row, column, static_cast<float>(result.values[static_cast<size_t>(row * kN + column)] * step));
  const Verdict verdict = result.close();
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(says(verdict, "the normalised error is ")) << verdict.reason;
}

TEST_P(EveryDtype, RefusesInfinityForAFiniteResult) {
  Result result(plain_problem(GetParam()));
  result.put(0, 0, std::numeric_limits<float>::infinity());
  const Verdict verdict = result.close();
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(says(verdict, "expert 0, row 0, column 0: got inf")) << verdict.reason;
}

TEST(Compare, AcceptsAnOverflowThatIsRight) {
  Result result(plain_problem(Dtype::fp16));
  result.values[3] = 1e6f;
  result.put(0, 3, std::numeric_limits<float>::infinity());
  // The reference's norm holds the large value; the element itself counts as right.
  EXPECT_EQ(result.close().max_ulps < 1, true) << result.close().reason;
}

TEST(Compare, TellsSeveralFaultsAtOnce) {
  Result result(plain_problem(Dtype::fp32));
  result.put(1, 1, 1e9f);
  *(result.output.data() - 1) ^= std::byte{1};
  const Verdict verdict = result.exact();
  EXPECT_TRUE(says(verdict, "elements differ")) << verdict.reason;
  EXPECT_TRUE(says(verdict, "; 1 bytes were written before")) << verdict.reason;
}

TEST(Compare, ToleratesOneRoundingOrTwo) {
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
TEST(Compare, ToleratesSumsOfFewProducts) {
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
    naive::Matrix y(dtype, 30 * 1000);
    std::memcpy(y.bytes.data(), output.data(), y.bytes.size());
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_TRUE(std::isnan(y.get(i)));
    EXPECT_EQ(output.written_before() + output.written_after(), 0);
  }
}

TEST(FirstDifference, IsTheFirstByteWithOtherBits) {
  Result result(naive::problem_of("zipf:1", 20, 4, 2, {.dtype = Dtype::bf16, .fusion = {}, .n = kN, .k = 8}));
  const std::vector<std::byte> earlier(result.output.data(), result.output.data() + result.output.bytes());
  EXPECT_EQ(first_difference(result.output, earlier), std::nullopt);
  result.output.data()[result.output.bytes() - 1] ^= std::byte{1};
  EXPECT_EQ(first_difference(result.output, earlier), result.output.bytes() - 1);
  result.output.data()[7] ^= std::byte{0x80};
  EXPECT_EQ(first_difference(result.output, earlier), 7);
}

}  // namespace
}  // namespace moetune
