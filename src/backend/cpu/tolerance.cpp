// Tolerances from the number of roundings and of products.
#include "backend/cpu/tolerance.h"

#include <algorithm>
#include <cmath>

#include "workload/result.h"

namespace moetune {
namespace {

// One rounding to p significant bits errs by half an ulp at most. With top-k weights there are two: the first, up to
// half an ulp of the sum, is up to one ulp after the multiplication, and the second adds another half.
constexpr double kUlpsOneRounding = 0.5;
constexpr double kUlpsTwoRoundings = 1.5;
// fp32 sums of k terms stray from the true sum: sequential sums by about 0.2 * sqrt(k) * 2^-24 of the rms result, as
// rounding errors that add up at random. Over all elements: five times that; the worst of 2^32 elements: six sigmas,
// doubled for other orders of summation. Products of normal numbers have long tails: of few terms a partial sum may be
// several times the rms before another term cancels it. That adds a constant: 2 to 13 terms were up to 9.6 ulps of fp32
// off in 12 million results.
constexpr double kNormNoise = 1.0;
constexpr double kWorstNoise = 2.5;
constexpr double kTailNoise = 8 * 0x1p-24;

}  // namespace

Tolerance tolerance(const Product& product, const Operand& result, int64_t terms) {
  const int bits = significand_bits(result.type.dtype);
  const bool twice = product.weighting == Weighting::rounded_result;
  const double noise = std::sqrt(static_cast<double>(terms)) * 0x1p-24;
  return {.normalised_error = (twice ? 2 : 1) * std::ldexp(1, -bits) + kNormNoise * noise,
          .ulps = (twice ? kUlpsTwoRoundings : kUlpsOneRounding) + std::ldexp(kWorstNoise * noise + kTailNoise, bits)};
}

Scopes scopes_of(const Product& product, const Operand& result, const float* wanted, double least_rms,
                 ThreadPool& pool) {
  const auto rows = static_cast<size_t>(result_rows(product, result));
  std::vector<double> squares(rows);
  pool.for_each(static_cast<int64_t>(rows), [&](int, int64_t row) {
    double sum = 0;
    for (int64_t i = row * result.columns; i < (row + 1) * result.columns; ++i)
      sum += static_cast<double>(wanted[i]) * wanted[i];
    squares[static_cast<size_t>(row)] = sum;
  });
  Scopes scopes{.terms = result_terms(product, result), .by_terms = {}};
  for (size_t row = 0; row < rows; ++row) {
    Scope& scope = scopes.by_terms[scopes.terms[row]];
    scope.squares += squares[row], scope.elements += result.columns;
  }
  for (auto& [terms, scope] : scopes.by_terms) {
    scope.limit = tolerance(product, result, terms);
    const auto elements = static_cast<double>(scope.elements);
    if (terms > 0) scope.squares = std::max(scope.squares, least_rms * least_rms * elements);
    scope.floor = static_cast<float>(std::sqrt(scope.squares / elements));
  }
  return scopes;
}

}  // namespace moetune
