// Scans every row of a result on all threads and puts what it finds into words.
#include "backend/cpu/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "workload/product/product_rows.h"

namespace moetune {
namespace {

// One rounding to p significant bits errs by half an ulp at most. With top-k weights there are two: the first, up to
// half an ulp of the sum, is up to one ulp after the multiplication, and the second adds another half.
constexpr double kUlpsOneRounding = 0.5;
constexpr double kUlpsTwoRoundings = 1.5;
constexpr double kUlpsOfSlots = 4.5;  // a row of a slot that is rounded another way; it may be larger than the sum
// fp32 sums of k terms stray from the true sum: sequential sums by about 0.2 * sqrt(k) * 2^-24 of the rms result, as
// rounding errors that add up at random. Over all elements: five times that; the worst of 2^32 elements: six sigmas,
// doubled for other orders of summation. Products of normal numbers have long tails: of few terms a partial sum may be
// several times the rms before another term cancels it. That adds a constant: 2 to 13 terms were up to 9.6 ulps of fp32
// off in 12 million results.
constexpr double kNormNoise = 1.0;
constexpr double kWorstNoise = 2.5;
constexpr double kTailNoise = 8 * 0x1p-24;

// An error of a gate or an up is multiplied by the other, which is up to six times its rms.
constexpr double kGatedNoise = 10;

// A quantised element may round the other way beside a tie, because its scale is rounded too; kLeastFp8 is the distance
// of the smallest elements.
constexpr double kUlpsBesideTie = 0.51, kLeastFp8 = 0x1p-9;

/// What is wrong with some rows of a result, and how far off the rest is.
struct Tally {
  int64_t wrong = 0;
  int64_t unwritten = 0;                      // of those
  int64_t wrong_row = -1, wrong_column = -1;  // the first: a row in memory
  float got = 0, wanted = 0;                  // there
  int64_t foreign = 0;                        // elements written in rows that no expert owns
  int64_t foreign_row = -1, foreign_column = -1;
  double error = 0;  // sum of squares
  double max_ulps = 0;

  void add(const Tally& later) {
    if (wrong == 0) wrong_row = later.wrong_row, wrong_column = later.wrong_column;
    if (wrong == 0) got = later.got, wanted = later.wanted;
    if (foreign == 0) foreign_row = later.foreign_row, foreign_column = later.foreign_column;
    wrong += later.wrong;
    unwritten += later.unwritten;
    foreign += later.foreign;
    error += later.error;
    max_ulps = std::max(max_ulps, later.max_ulps);
  }
};

/// A result and where its rows come from.
struct Result {
  Result(const Product& p, const Operand& o, const Output& written, const Output* scales_of_it)
      : product(p), operand(o), output(written), scales(scales_of_it), sources(static_cast<size_t>(o.rows), -1) {
    const std::vector<int64_t> rows = result_map(product, operand);
    for (size_t row = 0; row < rows.size(); ++row) sources[static_cast<size_t>(rows[row])] = static_cast<int64_t>(row);
  }

  const Product& product;
  const Operand& operand;
  const Output& output;
  const Output* scales;          // null without
  std::vector<int64_t> sources;  // [rows in memory] row of the reference, -1 where nothing may be written
  int64_t n = operand.columns;

  int64_t elements() const { return result_rows(product, operand) * n; }
  const std::byte* row(int64_t index) const { return output.data() + index * n * size_bytes(operand.type.dtype); }
  float scale(int64_t index, int64_t column) const {
    if (!scales) return 1;
    const int64_t width = operand.type.scales.columns;
    return reinterpret_cast<const float*>(scales->data())[index * ((n + width - 1) / width) + column / width];
  }
  bool is_unwritten(int64_t index, int64_t column) const {
    uint16_t halves[2] = {kUnwritten, kUnwritten};
    const auto element = static_cast<size_t>(size_bytes(operand.type.dtype));
    std::memcpy(halves, row(index) + static_cast<size_t>(column) * element, element);
    return halves[0] == kUnwritten && halves[1] == kUnwritten;
  }
};

/// is_wrong(row of the reference, value there, element of the result, its scale, tally) for every element that must be
/// written; the others must be unwritten. `wanted` has elements of `dtype`.
template <class IsWrong>
Tally scan(const Result& result, Dtype dtype, const std::byte* wanted, ThreadPool& pool, IsWrong&& is_wrong) {
  constexpr int64_t kPiece = 16;
  const auto rows = static_cast<int64_t>(result.sources.size());
  std::vector<Tally> tallies(static_cast<size_t>((rows + kPiece - 1) / kPiece));
  pool.for_each(static_cast<int64_t>(tallies.size()), [&](int, int64_t piece) {
    Tally tally;
    std::vector<float> got(static_cast<size_t>(result.n)), right(got.size());
    for (int64_t row = piece * kPiece; row < std::min(rows, (piece + 1) * kPiece); ++row) {
      const int64_t source = result.sources[static_cast<size_t>(row)];
      to_floats(result.operand.type.dtype, result.row(row), result.n, got.data());
      if (source >= 0) to_floats(dtype, wanted + source * result.n * size_bytes(dtype), result.n, right.data());
      for (int64_t column = 0; column < result.n; ++column) {
        const float one = got[static_cast<size_t>(column)], other = right[static_cast<size_t>(column)];
        if (source < 0) {
          if (!result.is_unwritten(row, column) && tally.foreign++ == 0)
            tally.foreign_row = row, tally.foreign_column = column;
        } else if (const float scale = result.scale(row, column); is_wrong(source, other, one, scale, tally)) {
          if (tally.wrong++ == 0)
            tally.wrong_row = row, tally.wrong_column = column, tally.got = one * (dtype == Dtype::fp32 ? scale : 1),
            tally.wanted = other;
          tally.unwritten += result.is_unwritten(row, column);
        }
      }
    }
    tallies[static_cast<size_t>(piece)] = tally;
  });
  Tally sum;
  for (const Tally& tally : tallies) sum.add(tally);
  return sum;
}

/// "expert 3, row 5, column 7", "token 5, column 7", "slot 5".
std::string place(const Result& result, int64_t row, int64_t column) {
  if (result.operand.matrix == LayerMatrix::dweights) return fmt::format("slot {}", row);
  if (is_filled(result.product, result.operand)) return fmt::format("token {}, column {}", row, column);
  const Place at = place_of(result.product, result.operand, result.sources[static_cast<size_t>(row)]);
  return fmt::format("expert {}, row {}, column {}", at.expert, at.row, column);
}

/// " of dweights"; nothing for D.
std::string of_which(const Result& result) {
  return result.operand.matrix == result.product.d.matrix ? "" : fmt::format(" of {}", name(result.operand.matrix));
}

/// What was found, in words. `fault` of wrong elements: "differ"; `more` is wrong with all of them together, or "".
Verdict judge(const Result& result, std::string_view inputs, const Tally& tally, std::string_view fault,
              const std::string& more) {
  std::vector<std::string> reasons;
  const Operand& d = result.operand;
  if (tally.wrong > 0)
    reasons.push_back(
        fmt::format("{} of {} elements{} {} ({} never written), the first at {}: got {:.9g}, expected {:.9g}",
                    tally.wrong, result.elements(), of_which(result), fault, tally.unwritten,
                    place(result, tally.wrong_row, tally.wrong_column), tally.got, tally.wanted));
  if (!more.empty()) reasons.push_back(more);
  if (tally.foreign > 0)
    reasons.push_back(fmt::format("{} elements were written in {}, the first at row {} of {}, column {}", tally.foreign,
                                  d.order == RowOrder::in_place ? "rows of padding" : "rows of other ranks",
                                  tally.foreign_row, name(d.matrix), tally.foreign_column));
  if (const int64_t bytes = result.output.written_before(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written before the start of {}", bytes, name(d.matrix)));
  if (const int64_t bytes = result.output.written_after(); bytes > 0)
    reasons.push_back(fmt::format("{} bytes were written after the end of {}", bytes, name(d.matrix)));
  Verdict verdict;
  verdict.ok = reasons.empty();
  if (!verdict.ok) verdict.reason = fmt::format("{} inputs: {}", inputs, fmt::join(reasons, "; "));
  verdict.elements = result.elements();
  return verdict;
}

/// Of D, and of its scales, the second result and dweights where the product has them: compare(result, its reference).
template <class Compare>
Verdict of_all_results(const Product& product, const OperandSet& set, const Reference& wanted, Compare&& compare) {
  const Output* scales = quantises(product) ? &set.d_scales : nullptr;
  Verdict verdict = compare(Result(product, product.d, set.d, scales), wanted.d);
  const auto add = [&](const Operand& operand, const Output& output, const Buffer& right) {
    const Verdict other = compare(Result(product, operand, output, nullptr), right);
    const int64_t elements = verdict.elements + other.elements, mismatches = verdict.mismatches + other.mismatches;
    if (verdict.ok && !other.ok) verdict = other;
    verdict.elements = elements, verdict.mismatches = mismatches;
  };
  if (quantises(product)) add(scales_of_result(product), set.d_scales, wanted.d_scales);
  if (const Operand* second = second_result(product)) add(*second, set.second, wanted.second);
  if (product.weight_gradient) add(product.weight_gradient->dweights, set.dweights, wanted.dweights);
  return verdict;
}

/// The largest power of two that is no larger than a normal `value`; 0 below.
double power_below(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7f800000); }

/// Results whose errors add up from the same number of products.
struct Scope {
  Tolerance limit;
  double squares = 0;  // sum of theirs
  int64_t elements = 0;
  float floor = 0;  // an ulp is that of a value no smaller: the rms of these results
};

/// By the number of products. Results that have any count as no smaller than `least_rms` in root mean square.
std::map<int64_t, Scope> scopes_of(const Result& result, const std::vector<int64_t>& terms, const float* wanted,
                                   double least_rms, ThreadPool& pool) {
  std::vector<double> squares(terms.size());
  pool.for_each(static_cast<int64_t>(terms.size()), [&](int, int64_t row) {
    double sum = 0;
    for (int64_t i = row * result.n; i < (row + 1) * result.n; ++i)
      sum += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
    squares[static_cast<size_t>(row)] = sum;
  });
  std::map<int64_t, Scope> scopes;
  for (size_t row = 0; row < terms.size(); ++row) {
    Scope& scope = scopes[terms[row]];
    scope.squares += squares[row], scope.elements += result.n;
  }
  for (auto& [count, scope] : scopes) {
    scope.limit = tolerance(result.product, result.operand, count);
    const auto elements = static_cast<double>(scope.elements);
    if (count > 0) scope.squares = std::max(scope.squares, least_rms * least_rms * elements);
    scope.floor = static_cast<float>(std::sqrt(scope.squares / elements));
  }
  return scopes;
}

/// Integer inputs: `wanted` [result_rows, columns] in the result's dtype; each element must have the same bits, or with
/// an activation be a neighbour.
Verdict compare_exact(const Result& result, const Buffer& wanted, ThreadPool& pool) {
  const Dtype dtype = result.operand.type.dtype;
  // The exponential isn't exact: beside a tie it may round to a neighbour.
  const double unit = has_activation(result.product) ? std::ldexp(1, 1 - significand_bits(dtype)) : 0;
  const Tally tally =
      scan(result, dtype, wanted.data(), pool, [&](int64_t, float right, float got, float, const Tally&) {
        if (std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(right)) return false;
        return !(std::abs(static_cast<double>(got) - static_cast<double>(right)) <=
                 unit * power_below(std::abs(right))) ||
               unit == 0;
      });
  Verdict verdict = judge(result, "integer", tally, "differ", "");
  verdict.mismatches = tally.wrong;
  return verdict;
}

/// Random inputs: `wanted` [result_rows, columns] floats, unrounded; errors must be within tolerance, relative to the
/// root mean square of the results or, if that is smaller, to `least_rms`.
Verdict compare_close(const Result& result, const Buffer& wanted, ThreadPool& pool, double least_rms) {
  const Product& product = result.product;
  const Operand& operand = result.operand;
  const double unit = std::ldexp(1, 1 - significand_bits(operand.type.dtype));  // last place of 1.0
  const std::vector<int64_t> terms = result_terms(product, operand);
  const std::map<int64_t, Scope> scopes = scopes_of(result, terms, wanted.as<float>(), least_rms, pool);
  const auto scope_of = [&](int64_t source) -> const Scope& { return scopes.at(terms[static_cast<size_t>(source)]); };
  const auto is_wrong = [&](int64_t source, float right, float got, float scale, Tally& found) {
    const Scope& scope = scope_of(source);
    double error = static_cast<double>(got) * static_cast<double>(scale) - static_cast<double>(right);
    if (!std::isfinite(got))
      error = got == round_to(operand.type.dtype, right) ? 0 : std::numeric_limits<double>::infinity();
    double ulp = unit * power_below(std::max(std::abs(right), scope.floor));  // 0 where the reference is all zeros
    double limit = scope.limit.ulps;
    if (result.scales) {
      // An ulp of what is rounded, down to subnormals. Sums are as far off as the largest that shares the scale.
      ulp = std::max(unit * power_below(std::abs(right / scale)), kLeastFp8) * static_cast<double>(scale);
      const double of_sums = std::ldexp(limit - kUlpsOneRounding, -significand_bits(operand.type.dtype));
      limit = kUlpsBesideTie + of_sums * kMaxFp8 * static_cast<double>(scale) / ulp;
    }
    const double ulps = error == 0 ? 0 : std::abs(error) / ulp;
    found.error += error * error;
    found.max_ulps = std::max(found.max_ulps, ulps);
    return !(ulps <= limit);
  };
  const Tally tally = scan(result, Dtype::fp32, wanted.data(), pool, is_wrong);
  double squares = 0;
  for (const auto& [count, scope] : scopes) squares += scope.squares;
  const double normalised = std::sqrt(squares > 0 ? tally.error / squares : tally.error);
  const double limit = tolerance(product, operand, scopes.empty() ? 0 : scopes.rbegin()->first).normalised_error;
  const double ulps = tally.wrong > 0 ? scope_of(result.sources[static_cast<size_t>(tally.wrong_row)]).limit.ulps : 0;
  Verdict verdict = judge(result, "random", tally, fmt::format("are more than {:.3g} ulps off", ulps),
                          normalised <= limit ? ""
                                              : fmt::format("the normalised error{} is {:.3g}, more than {:.3g}",
                                                            of_which(result), normalised, limit));
  verdict.normalised_error = normalised;
  verdict.max_ulps = tally.max_ulps;
  return verdict;
}

}  // namespace

Tolerance tolerance(const Product& product, const Operand& result, int64_t terms) {
  const int bits = significand_bits(result.type.dtype);
  const bool sums = sums_slots(product), twice = sums || product.weighting == Weighting::rounded_result;
  const double gated = has_activation(product) ? kGatedNoise : 1;
  const double noise = gated * std::sqrt(static_cast<double>(terms)) * 0x1p-24;
  return {.normalised_error = (twice ? 2 : 1) * std::ldexp(1, -bits) + kNormNoise * noise,
          .ulps = (sums    ? kUlpsOfSlots
                   : twice ? kUlpsTwoRoundings
                           : kUlpsOneRounding) +
                  std::ldexp(kWorstNoise * noise + gated * kTailNoise, bits)};
}

Verdict compare_exact(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool) {
  return of_all_results(product, set, wanted,
                        [&](const Result& result, const Buffer& right) { return compare_exact(result, right, pool); });
}

Verdict compare_close(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool) {
  return of_all_results(product, set, wanted, [&](const Result& result, const Buffer& right) {
    const double least_rms = result.operand.matrix == LayerMatrix::dweights ? wanted.dweights_rms : 0;
    return compare_close(result, right, pool, least_rms);
  });
}

std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier) {
  const auto differs =
      std::mismatch(output.data(), output.data() + output.bytes(), earlier.begin(), earlier.end()).first;
  if (differs == output.data() + output.bytes()) return std::nullopt;
  return differs - output.data();
}

}  // namespace moetune
