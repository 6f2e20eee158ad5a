// Scans every row of Y on all threads and puts what it finds into words.
#include "backend/cpu/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace moetune {
namespace {

// One rounding to p significant bits errs by half an ulp at most. With top-k weights there are two: the first, up to
// half an ulp of the sum, is up to one ulp after the multiplication, and the second adds another half.
constexpr double kUlpsOneRounding = 0.5;
constexpr double kUlpsTwoRoundings = 1.5;
// fp32 sums of k terms stray from the true sum: sequential sums by about 0.2 * sqrt(k) * 2^-24 of the rms result, as
// rounding errors that add up at random. Over all elements: five times that; the worst of 2^32 elements: six sigmas,
// doubled for other orders of summation.
constexpr double kNormNoise = 1.0;
constexpr double kWorstNoise = 2.5;

/// What is wrong with some rows of Y, and how far off the rest is.
struct Tally {
  int64_t wrong = 0;
  int64_t unwritten = 0;                      // of those
  int64_t wrong_row = -1, wrong_column = -1;  // the first: a row of Y
  int64_t foreign = 0;                        // elements written in rows that another rank owns
  int64_t foreign_row = -1, foreign_column = -1;
  double error = 0, reference = 0;  // sums of squares
  double max_ulps = 0;

  void add_wrong(int64_t row, int64_t column, bool was_unwritten) {
    if (wrong++ == 0) wrong_row = row, wrong_column = column;
    unwritten += was_unwritten;
  }
  void add_foreign(int64_t row, int64_t column) {
    if (foreign++ == 0) foreign_row = row, foreign_column = column;
  }
  void add(const Tally& later) {
    if (wrong == 0) wrong_row = later.wrong_row, wrong_column = later.wrong_column;
    if (foreign == 0) foreign_row = later.foreign_row, foreign_column = later.foreign_column;
    wrong += later.wrong;
    unwritten += later.unwritten;
    foreign += later.foreign;
    error += later.error;
    reference += later.reference;
    max_ulps = std::max(max_ulps, later.max_ulps);
  }
};

/// A view of Y and of where its rows come from.
struct Result {
  const Problem& problem;
  const Output& output;
  std::vector<int64_t> sources;  // [y_rows] row in expert order, -1 where another rank owns it
  Dtype dtype;
  int64_t n;

  const std::byte* at(int64_t row, int64_t column) const { return output.y() + (row * n + column) * size_bytes(dtype); }
  bool is_unwritten(int64_t row, int64_t column) const {
    uint16_t halves[2] = {kUnwritten, kUnwritten};
    std::memcpy(halves, at(row, column), static_cast<size_t>(size_bytes(dtype)));
    return halves[0] == kUnwritten && halves[1] == kUnwritten;
  }
};

float value_at(Dtype dtype, const void* element) {
  if (dtype == Dtype::fp32) return *static_cast<const float*>(element);
  const uint16_t bits = *static_cast<const uint16_t*>(element);
  return dtype == Dtype::bf16 ? from_bf16(bits) : from_fp16(bits);
}

Result view(const Problem& problem, const Output& output) {
  Result result{problem, output, {}, problem.shape.layer.dtype, problem.shape.layer.n};
  const auto& gather = problem.routing.gather_indices;
  result.sources.assign(static_cast<size_t>(problem.y_rows()), -1);
  for (size_t row = 0; row < gather.size(); ++row)
    result.sources[problem.shape.fusion.permute_y ? static_cast<size_t>(gather[row]) : row] = static_cast<int64_t>(row);
  return result;
}

/// check(row of Y, row in expert order, tally) for every row that must be written; looks itself at the others.
template <class Check>
Tally scan(const Result& result, ThreadPool& pool, Check&& check) {
  constexpr int64_t kPiece = 16;
  const auto rows = static_cast<int64_t>(result.sources.size());
  std::vector<Tally> tallies(static_cast<size_t>((rows + kPiece - 1) / kPiece));
  pool.for_each(static_cast<int64_t>(tallies.size()), [&](int, int64_t piece) {
    Tally tally;
    for (int64_t row = piece * kPiece; row < std::min(rows, (piece + 1) * kPiece); ++row) {
      const int64_t source = result.sources[static_cast<size_t>(row)];
      if (source >= 0) {
        check(row, source, tally);
      } else {
        for (int64_t column = 0; column < result.n; ++column)
          if (!result.is_unwritten(row, column)) tally.add_foreign(row, column);
      }
    }
    tallies[static_cast<size_t>(piece)] = tally;
  });
  Tally sum;
  for (const Tally& tally : tallies) sum.add(tally);
  return sum;
}

/// "expert 3, row 5, column 7: got 2, wanted 4".
std::string place(const Result& result, int64_t row, int64_t column, double wanted) {
  const auto& m_sizes = result.problem.routing.m_sizes;
  int64_t in_expert = result.sources[static_cast<size_t>(row)];
  size_t expert = 0;
  while (in_expert >= m_sizes[expert]) in_expert -= m_sizes[expert++];
  return fmt::format("expert {}, row {}, column {}: got {:.9g}, wanted {:.9g}", expert, in_expert, column,
                     value_at(result.dtype, result.at(row, column)), wanted);
}

/// What is wrong outside of the elements that were to be written.
std::vector<std::string> trespasses(const Result& result, const Tally& tally) {
  std::vector<std::string> reasons;
  if (tally.foreign > 0)
    reasons.push_back(
        fmt::format("{} elements were written in rows of other ranks, the first at row {} of Y, column {}",
                    tally.foreign, tally.foreign_row, tally.foreign_column));
  if (const int64_t bytes = result.output.written_before(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written before the start of Y", bytes));
  if (const int64_t bytes = result.output.written_after(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written after the end of Y", bytes));
  return reasons;
}

Verdict judge(const Result& result, std::string_view inputs, const std::vector<std::string>& reasons) {
  Verdict verdict;
  verdict.ok = reasons.empty();
  if (!verdict.ok) verdict.reason = fmt::format("{} inputs: {}", inputs, fmt::join(reasons, "; "));
  verdict.elements = result.problem.rows() * result.n;
  return verdict;
}

/// The largest power of two that is no larger than a normal `value`; 0 below.
double power_below(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7f800000); }

double rms(const Problem& problem, const float* values, ThreadPool& pool) {
  const int64_t rows = problem.rows(), n = problem.shape.layer.n;
  std::vector<double> squares(static_cast<size_t>(rows));
  pool.for_each(rows, [&](int, int64_t row) {
    double sum = 0;
    for (int64_t i = row * n; i < (row + 1) * n; ++i) sum += static_cast<double>(values[i]) * values[i];
    squares[static_cast<size_t>(row)] = sum;
  });
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum / static_cast<double>(std::max<int64_t>(1, rows * n)));
}

}  // namespace

Tolerance tolerance(const Shape& shape) {
  const int bits = significand_bits(shape.layer.dtype);
  const bool twice = shape.fusion.topk_weights;
  const double noise = std::sqrt(static_cast<double>(shape.layer.k)) * 0x1p-24;
  return {.normalised_error = (twice ? 2 : 1) * std::ldexp(1, -bits) + kNormNoise * noise,
          .ulps = (twice ? kUlpsTwoRoundings : kUlpsOneRounding) + std::ldexp(kWorstNoise * noise, bits)};
}

Verdict compare_exact(const Problem& problem, const Output& output, const void* wanted, ThreadPool& pool) {
  const Result result = view(problem, output);
  const int64_t element = size_bytes(result.dtype), row_bytes = result.n * element;
  const auto* bits = static_cast<const std::byte*>(wanted);
  const Tally tally = scan(result, pool, [&](int64_t row, int64_t source, Tally& found) {
    const std::byte* right = bits + source * row_bytes;
    if (std::memcmp(result.at(row, 0), right, static_cast<size_t>(row_bytes)) == 0) return;
    for (int64_t column = 0; column < result.n; ++column)
      if (std::memcmp(result.at(row, column), right + column * element, static_cast<size_t>(element)) != 0)
        found.add_wrong(row, column, result.is_unwritten(row, column));
  });
  std::vector<std::string> reasons = trespasses(result, tally);
  if (tally.wrong > 0) {
    const int64_t source = result.sources[static_cast<size_t>(tally.wrong_row)];
    const float right = value_at(result.dtype, bits + (source * result.n + tally.wrong_column) * element);
    reasons.insert(reasons.begin(), fmt::format("{} of {} elements differ ({} never written), the first at {}",
                                                tally.wrong, problem.rows() * result.n, tally.unwritten,
                                                place(result, tally.wrong_row, tally.wrong_column, right)));
  }
  Verdict verdict = judge(result, "integer", reasons);
  verdict.mismatches = tally.wrong;
  return verdict;
}

Verdict compare_close(const Problem& problem, const Output& output, const float* wanted, ThreadPool& pool) {
  const Result result = view(problem, output);
  const Tolerance limit = tolerance(problem.shape);
  const double unit = std::ldexp(1, 1 - significand_bits(result.dtype));  // last place of 1.0
  const auto floor = static_cast<float>(rms(problem, wanted, pool));
  const Tally tally = scan(result, pool, [&](int64_t row, int64_t source, Tally& found) {
    for (int64_t column = 0; column < result.n; ++column) {
      const float right = wanted[source * result.n + column];
      const float got = value_at(result.dtype, result.at(row, column));
      double error = static_cast<double>(got) - static_cast<double>(right);
      if (!std::isfinite(got))
        error = got == round_to(result.dtype, right) ? 0 : std::numeric_limits<double>::infinity();
      const double ulps = std::abs(error) / (unit * power_below(std::max(std::abs(right), floor)));
      found.error += error * error;
      found.reference += static_cast<double>(right) * right;
      found.max_ulps = std::max(found.max_ulps, ulps);
      if (ulps > limit.ulps) found.add_wrong(row, column, result.is_unwritten(row, column));
    }
  });
  const double normalised = tally.reference > 0 ? std::sqrt(tally.error / tally.reference) : std::sqrt(tally.error);
  std::vector<std::string> reasons = trespasses(result, tally);
  if (!(normalised <= limit.normalised_error))
    reasons.insert(reasons.begin(),
                   fmt::format("the normalised error is {:.3g}, more than {:.3g}", normalised, limit.normalised_error));
  if (tally.wrong > 0) {
    const int64_t source = result.sources[static_cast<size_t>(tally.wrong_row)];
    reasons.insert(reasons.begin(),
                   fmt::format("{} of {} elements are more than {:.3g} ulps off ({} never written), the first at {}",
                               tally.wrong, problem.rows() * result.n, limit.ulps, tally.unwritten,
                               place(result, tally.wrong_row, tally.wrong_column,
                                     wanted[source * result.n + tally.wrong_column])));
  }
  Verdict verdict = judge(result, "random", reasons);
  verdict.normalised_error = normalised;
  verdict.max_ulps = tally.max_ulps;
  return verdict;
}

std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier) {
  const auto differs = std::mismatch(output.y(), output.y() + output.bytes(), earlier.begin(), earlier.end()).first;
  if (differs == output.y() + output.bytes()) return std::nullopt;
  return differs - output.y();
}

}  // namespace moetune
