// Scans every row of a result on all threads and puts what it finds into words.
#include "backend/cpu/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "workload/result.h"

namespace moetune {
namespace {

/// What is wrong with some rows of a result, and how far off the rest is.
struct Tally {
  int64_t wrong = 0;
  int64_t unwritten = 0;                      // of those
  int64_t wrong_row = -1, wrong_column = -1;  // the first: a row in memory
  int64_t foreign = 0;                        // elements written in rows that no expert owns
  int64_t foreign_row = -1, foreign_column = -1;
  double error = 0;  // sum of squares
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
    max_ulps = std::max(max_ulps, later.max_ulps);
  }
};

/// A view of a result and of where its rows come from.
struct Result {
  const Product& product;
  const Operand& operand;
  const Output& output;
  std::vector<int64_t> sources;  // [rows in memory] row of the reference, -1 where nothing may be written
  Dtype dtype;
  int64_t n;

  int64_t elements() const { return result_rows(product, operand) * n; }
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

Result view(const Product& product, const Operand& operand, const Output& output) {
  Result result{product, operand, output, {}, operand.type.dtype, operand.columns};
  result.sources.assign(static_cast<size_t>(operand.rows), -1);
  const std::vector<int64_t> rows = result_map(product, operand);
  for (size_t row = 0; row < rows.size(); ++row)
    result.sources[static_cast<size_t>(rows[row])] = static_cast<int64_t>(row);
  return result;
}

/// check(row in memory, row of the reference, tally) for every row that must be written; checks the others itself.
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

/// "expert 3, row 5, column 7", "token 5, column 7", "slot 5".
std::string place(const Result& result, int64_t row, int64_t column) {
  if (result.operand.matrix == LayerMatrix::dweights) return fmt::format("slot {}", row);
  if (is_filled(result.product, result.operand)) return fmt::format("token {}, column {}", row, column);
  const Place at = place_of(result.product, result.operand, result.sources[static_cast<size_t>(row)]);
  return fmt::format("expert {}, row {}, column {}", at.expert, at.row, column);
}

/// "expert 3, row 5, column 7: got 2, expected 4".
std::string difference(const Result& result, int64_t row, int64_t column, double wanted) {
  return fmt::format("{}: got {:.9g}, expected {:.9g}", place(result, row, column),
                     value_at(result.dtype, result.at(row, column)), wanted);
}

/// " of dweights"; nothing for D.
std::string of_which(const Result& result) {
  return result.operand.matrix == result.product.d.matrix ? "" : fmt::format(" of {}", name(result.operand.matrix));
}

/// Faults outside D: rows of other ranks and guard zones that were written.
std::vector<std::string> trespasses(const Result& result, const Tally& tally) {
  std::vector<std::string> reasons;
  const Operand& d = result.operand;
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

Verdict with_dweights(const Verdict& d, const Verdict& dweights) {
  Verdict verdict = d.ok ? dweights : d;
  verdict.elements = d.elements + dweights.elements;
  verdict.mismatches = d.mismatches + dweights.mismatches;
  if (dweights.ok) verdict.normalised_error = d.normalised_error, verdict.max_ulps = d.max_ulps;
  return verdict;
}

/// The largest power of two that is no larger than a normal `value`; 0 below.
double power_below(float value) { return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7f800000); }

}  // namespace

Verdict compare_exact(const Product& product, const Operand& operand, const Output& output, const void* wanted,
                      ThreadPool& pool) {
  const Result result = view(product, operand, output);
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
    reasons.insert(reasons.begin(), fmt::format("{} of {} elements{} differ ({} never written), the first at {}",
                                                tally.wrong, result.elements(), of_which(result), tally.unwritten,
                                                difference(result, tally.wrong_row, tally.wrong_column, right)));
  }
  Verdict verdict = judge(result, "integer", reasons);
  verdict.mismatches = tally.wrong;
  return verdict;
}

Verdict compare_close(const Product& product, const Operand& operand, const Output& output, const float* wanted,
                      ThreadPool& pool, double least_rms) {
  const Result result = view(product, operand, output);
  const double unit = std::ldexp(1, 1 - significand_bits(result.dtype));  // last place of 1.0
  const Scopes scopes = scopes_of(product, operand, wanted, least_rms, pool);
  const Tally tally = scan(result, pool, [&](int64_t row, int64_t source, Tally& found) {
    const Scope& scope = scopes.of(source);
    for (int64_t column = 0; column < result.n; ++column) {
      const float right = wanted[source * result.n + column];
      const float got = value_at(result.dtype, result.at(row, column));
      double error = static_cast<double>(got) - static_cast<double>(right);
      if (!std::isfinite(got))
        error = got == round_to(result.dtype, right) ? 0 : std::numeric_limits<double>::infinity();
      const double ulp =
          unit * power_below(std::max(std::abs(right), scope.floor));  // 0 where the reference is all zeros
      const double ulps = error == 0 ? 0 : std::abs(error) / ulp;
      found.error += error * error;
      found.max_ulps = std::max(found.max_ulps, ulps);
      if (ulps > scope.limit.ulps) found.add_wrong(row, column, result.is_unwritten(row, column));
    }
  });
  const double squares = scopes.squares();
  const double normalised = std::sqrt(squares > 0 ? tally.error / squares : tally.error);
  const Tolerance limit = tolerance(product, operand, scopes.most_terms());
  std::vector<std::string> reasons = trespasses(result, tally);
  if (!(normalised <= limit.normalised_error))
    reasons.insert(reasons.begin(), fmt::format("the normalised error{} is {:.3g}, more than {:.3g}", of_which(result),
                                                normalised, limit.normalised_error));
  if (tally.wrong > 0) {
    const int64_t source = result.sources[static_cast<size_t>(tally.wrong_row)];
    reasons.insert(
        reasons.begin(),
        fmt::format(
            "{} of {} elements{} are more than {:.3g} ulps off ({} never written), the first at {}", tally.wrong,
            result.elements(), of_which(result), scopes.of(source).limit.ulps, tally.unwritten,
            difference(result, tally.wrong_row, tally.wrong_column, wanted[source * result.n + tally.wrong_column])));
  }
  Verdict verdict = judge(result, "random", reasons);
  verdict.normalised_error = normalised;
  verdict.max_ulps = tally.max_ulps;
  return verdict;
}

Verdict compare_exact(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool) {
  Verdict d = compare_exact(product, product.d, set.d, wanted.d.data(), pool);
  if (!product.weight_gradient) return d;
  const Operand& dweights = product.weight_gradient->dweights;
  return with_dweights(d, compare_exact(product, dweights, set.dweights, wanted.dweights.data(), pool));
}

Verdict compare_close(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool) {
  Verdict d = compare_close(product, product.d, set.d, wanted.d.as<float>(), pool);
  if (!product.weight_gradient) return d;
  const Operand& dweights = product.weight_gradient->dweights;
  return with_dweights(
      d, compare_close(product, dweights, set.dweights, wanted.dweights.as<float>(), pool, wanted.dweights_rms));
}

std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier) {
  const auto differs =
      std::mismatch(output.data(), output.data() + output.bytes(), earlier.begin(), earlier.end()).first;
  if (differs == output.data() + output.bytes()) return std::nullopt;
  return differs - output.data();
}

}  // namespace moetune
