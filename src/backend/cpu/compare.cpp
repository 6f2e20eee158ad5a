// Scans every row of D on all threads and puts what it finds into words.
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

/// What is wrong with some rows of D, and how far off the rest is.
struct Tally {
  int64_t wrong = 0;
  int64_t unwritten = 0;                      // of those
  int64_t wrong_row = -1, wrong_column = -1;  // the first: a row of D in memory
  int64_t foreign = 0;                        // elements written in rows that no expert owns
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

/// A view of D and of where its rows come from.
struct Result {
  const Product& product;
  const Output& output;
  std::vector<int64_t> sources;  // [rows in memory] row in expert order, -1 where no expert owns it
  Dtype dtype;
  int64_t n;

  int64_t elements() const { return owned_rows(product, product.d) * n; }
  const std::byte* at(int64_t row, int64_t column) const {
    return output.data() + (row * n + column) * size_bytes(dtype);
  }
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

Result view(const Product& product, const Output& output) {
  Result result{product, output, {}, product.d.dtype, product.d.columns};
  result.sources.assign(static_cast<size_t>(product.d.rows), -1);
  const std::vector<int64_t> rows = row_map(product, product.d);
  for (size_t row = 0; row < rows.size(); ++row)
    result.sources[static_cast<size_t>(rows[row])] = static_cast<int64_t>(row);
  return result;
}

/// check(row of D in memory, row in expert order, tally) for every row that must be written; looks itself at the
/// others.
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
  const Place at = place_of(result.product, result.product.d, result.sources[static_cast<size_t>(row)]);
  return fmt::format("expert {}, row {}, column {}: got {:.9g}, expected {:.9g}", at.expert, at.row, column,
                     value_at(result.dtype, result.at(row, column)), wanted);
}

/// Faults outside D: rows of other ranks and guard zones that were written.
std::vector<std::string> trespasses(const Result& result, const Tally& tally) {
  std::vector<std::string> reasons;
  const Operand& d = result.product.d;
  if (tally.foreign > 0)
    reasons.push_back(fmt::format("{} elements were written in {}, the first at row {} of {}, column {}", tally.foreign,
                                  d.order == RowOrder::in_place ? "rows of padding" : "rows of other ranks",
                                  tally.foreign_row, name(d.matrix), tally.foreign_column));
  if (const int64_t bytes = result.output.written_before(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written before the start of {}", bytes, name(d.matrix)));
  if (const int64_t bytes = result.output.written_after(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written after the end of {}", bytes, name(d.matrix)));
  return reasons;
}

Verdict judge(const Result& result, std::string_view inputs, const std::vector<std::string>& reasons) {
  Verdict verdict;
  verdict.ok = reasons.empty();
  if (!verdict.ok) verdict.reason = fmt::format("{} inputs: {}", inputs, fmt::join(reasons, "; "));
  verdict.elements = result.elements();
  return verdict;
}

/// The largest power of two that is no larger than a normal `value`; 0 below.
double power_below(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7f800000); }

/// Root of the mean square of `rows` rows of n values from `values` on.
double rms(const float* values, int64_t rows, int64_t n, ThreadPool& pool) {
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

/// The tolerance of results that are sums of the same number of products.
struct Scope {
  Tolerance limit;
  float floor = 0;  // an ulp is that of a value no smaller: the rms of these results
};

/// One for all rows where K is the same for every expert, else one an expert.
std::vector<Scope> scopes(const Product& product, const float* wanted, ThreadPool& pool) {
  const Operand& d = product.d;
  const auto scope_of = [&](int64_t terms, int64_t first, int64_t rows) {
    return Scope{tolerance(product, terms), static_cast<float>(rms(wanted + first * d.columns, rows, d.columns, pool))};
  };
  if (product.ragged != Axis::k) return {scope_of(product.k, 0, owned_rows(product, d))};
  std::vector<Scope> scopes;
  for (int64_t expert = 0; expert < experts(product); ++expert)
    scopes.push_back(
        scope_of(extent(product, expert, Axis::k), first_row(product, d, expert), extent(product, expert, d.row_axis)));
  return scopes;
}

int64_t most_terms(const Product& product) {
  int64_t terms = 0;
  for (int64_t expert = 0; expert < experts(product); ++expert)
    terms = std::max(terms, extent(product, expert, Axis::k));
  return terms;
}

}  // namespace

Tolerance tolerance(const Product& product, int64_t terms) {
  const int bits = significand_bits(product.d.dtype);
  const bool twice = product.weighting == Weighting::rounded_result;
  const double noise = std::sqrt(static_cast<double>(terms)) * 0x1p-24;
  return {.normalised_error = (twice ? 2 : 1) * std::ldexp(1, -bits) + kNormNoise * noise,
          .ulps = (twice ? kUlpsTwoRoundings : kUlpsOneRounding) + std::ldexp(kWorstNoise * noise, bits)};
}

Verdict compare_exact(const Product& product, const Output& output, const void* wanted, ThreadPool& pool) {
  const Result result = view(product, output);
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
                                                tally.wrong, result.elements(), tally.unwritten,
                                                place(result, tally.wrong_row, tally.wrong_column, right)));
  }
  Verdict verdict = judge(result, "integer", reasons);
  verdict.mismatches = tally.wrong;
  return verdict;
}

Verdict compare_close(const Product& product, const Output& output, const float* wanted, ThreadPool& pool) {
  const Result result = view(product, output);
  const double unit = std::ldexp(1, 1 - significand_bits(result.dtype));  // last place of 1.0
  const std::vector<Scope> all = scopes(product, wanted, pool);
  const Tally tally = scan(result, pool, [&](int64_t row, int64_t source, Tally& found) {
    const auto& [limit, floor] = all.size() == 1 ? all[0] : all[place_of(product, product.d, source).expert];
    for (int64_t column = 0; column < result.n; ++column) {
      const float right = wanted[source * result.n + column];
      const float got = value_at(result.dtype, result.at(row, column));
      double error = static_cast<double>(got) - static_cast<double>(right);
      if (!std::isfinite(got))
        error = got == round_to(result.dtype, right) ? 0 : std::numeric_limits<double>::infinity();
      const double ulp = unit * power_below(std::max(std::abs(right), floor));  // 0 where the reference is all zeros
      const double ulps = error == 0 ? 0 : std::abs(error) / ulp;
      found.error += error * error;
      found.reference += static_cast<double>(right) * right;
      found.max_ulps = std::max(found.max_ulps, ulps);
      if (ulps > limit.ulps) found.add_wrong(row, column, result.is_unwritten(row, column));
    }
  });
  const double normalised = tally.reference > 0 ? std::sqrt(tally.error / tally.reference) : std::sqrt(tally.error);
  const Tolerance limit = tolerance(product, most_terms(product));
  std::vector<std::string> reasons = trespasses(result, tally);
  if (!(normalised <= limit.normalised_error))
    reasons.insert(reasons.begin(),
                   fmt::format("the normalised error is {:.3g}, more than {:.3g}", normalised, limit.normalised_error));
  if (tally.wrong > 0) {
    const int64_t source = result.sources[static_cast<size_t>(tally.wrong_row)];
    reasons.insert(reasons.begin(),
                   fmt::format("{} of {} elements are more than {:.3g} ulps off ({} never written), the first at {}",
                               tally.wrong, result.elements(), limit.ulps, tally.unwritten,
                               place(result, tally.wrong_row, tally.wrong_column,
                                     wanted[source * result.n + tally.wrong_column])));
  }
  Verdict verdict = judge(result, "random", reasons);
  verdict.normalised_error = normalised;
  verdict.max_ulps = tally.max_ulps;
  return verdict;
}

std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier) {
  const auto differs =
      std::mismatch(output.data(), output.data() + output.bytes(), earlier.begin(), earlier.end()).first;
  if (differs == output.data() + output.bytes()) return std::nullopt;
  return differs - output.data();
}

}  // namespace moetune
