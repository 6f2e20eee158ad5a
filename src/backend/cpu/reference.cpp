// The plain product in double: expert after expert, rows of A times rows of B; and where its sums go, with how many
// roundings.
#include "backend/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "workload/result.h"

namespace moetune {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 16;
constexpr int64_t kDepth = int64_t{1} << 16;  // of K at a time
constexpr int64_t kRoomBytes = sizeof(double) + sizeof(float);

/// `count` of an operand's M or N from `first` on, over [from, from + depth) of K.
struct Part {
  int64_t expert = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t from = 0;
  int64_t depth = 0;
};

// Rows in memory that a part lies in.
int64_t lines(const Input& input, const Part& part) { return is_k_major(input.operand) ? part.count : part.depth; }

// One of those rows into its place in panel [count, depth]. `room` has kRoomBytes for each element of the row.
void unpack_line(const Input& input, const Part& part, int64_t line, double* room, double* panel) {
  const bool k_major = is_k_major(input.operand);
  const int64_t row = (k_major ? part.first : part.from) + line, column = k_major ? part.from : part.first;
  const int64_t count = k_major ? part.depth : part.count;
  auto* floats = reinterpret_cast<float*>(room + count);
  input.unpack(part.expert, row, column, count, floats);
  for (int64_t i = 0; i < count; ++i) room[i] = static_cast<double>(floats[i]);
  input.scale(part.expert, row, column, count, room);
  for (int64_t i = 0; i < count; ++i) panel[k_major ? line * part.depth + i : i * part.depth + line] = room[i];
}

// Rows [0, rows) times columns [0, columns), Dots::kRows by dots.columns at a time; where there are fewer, the last is
// taken again and its result dropped. emit(row, column, sum).
template <class Emit>
void block(const double* a, int64_t rows, const double* b, int64_t columns, int64_t depth, Emit&& emit) {
  const int step = dots().columns;
  for (int64_t row = 0; row < rows; row += Dots::kRows)
    for (int64_t column = 0; column < columns; column += step) {
      const double* a_rows[Dots::kRows];
      const double* b_rows[Dots::kMaxColumns];
      double sums[Dots::kRows * Dots::kMaxColumns];
      for (int r = 0; r < Dots::kRows; ++r) a_rows[r] = a + std::min(row + r, rows - 1) * depth;
      for (int n = 0; n < step; ++n) b_rows[n] = b + std::min(column + n, columns - 1) * depth;
      dots().of(a_rows, b_rows, depth, sums);
      for (int64_t r = 0; r < std::min<int64_t>(Dots::kRows, rows - row); ++r)
        for (int64_t n = 0; n < std::min<int64_t>(step, columns - column); ++n)
          emit(row + r, column + n, sums[r * step + n]);
    }
}

class Summation {
 public:
  Summation(const Product& product, const Matrices& matrices, ThreadPool& pool)
      : product_(product), pool_(pool), a_(input_a(product, matrices)), b_(input_b(product, matrices)) {
    int64_t depth = 0;
    for (int64_t expert = 0; expert < experts(product); ++expert)
      depth = std::max(depth, extent(product, expert, Axis::k));
    depth = std::min(depth, kDepth);
    constexpr auto kDoubleBytes = static_cast<int64_t>(sizeof(double));
    sums_ = Buffer(kRows * product.n * kDoubleBytes);
    a_panel_ = Buffer(kRows * depth * kDoubleBytes);
    for (int thread = 0; thread < pool.size(); ++thread) {
      b_panels_.emplace_back(kColumns * depth * kDoubleBytes);
      rooms_.emplace_back(std::max(kRows, depth) * kRoomBytes);
    }
  }

  /// Sums [rows, N] of rows [first, first + rows) of an expert's matrix.
  const double* rows_of(int64_t expert, int64_t first, int64_t rows) {
    auto* sums = sums_.as<double>();
    std::fill_n(sums, rows * product_.n, 0.0);
    const int64_t k = extent(product_, expert, Axis::k);
    for (int64_t from = 0; from < k; from += kDepth) add(expert, first, rows, from, std::min(kDepth, k - from));
    return sums;
  }

 private:
  void add(int64_t expert, int64_t first, int64_t rows, int64_t from, int64_t depth) {
    const Part part{.expert = expert, .first = first, .count = rows, .from = from, .depth = depth};
    auto* a = a_panel_.as<double>();
    pool_.for_each(lines(a_, part), [&](int thread, int64_t line) { unpack_line(a_, part, line, room(thread), a); });
    pool_.for_each((product_.n + kColumns - 1) / kColumns, [&](int thread, int64_t tile) {
      const int64_t column = tile * kColumns, columns = std::min(kColumns, product_.n - column);
      const Part panel{.expert = expert, .first = column, .count = columns, .from = from, .depth = depth};
      auto* b = b_panels_[static_cast<size_t>(thread)].as<double>();
      for (int64_t line = 0; line < lines(b_, panel); ++line) unpack_line(b_, panel, line, room(thread), b);
      block(a, rows, b, columns, depth,
            [&](int64_t r, int64_t c, double sum) { sums_.as<double>()[r * product_.n + column + c] += sum; });
    });
  }
  double* room(int thread) { return rooms_[static_cast<size_t>(thread)].as<double>(); }

  const Product& product_;
  ThreadPool& pool_;
  Input a_, b_;
  Buffer sums_, a_panel_;         // [kRows, N], [kRows, depth]
  std::vector<Buffer> b_panels_;  // a thread: [kColumns, depth]
  std::vector<Buffer> rooms_;     // a thread: a row as it is unpacked
};

/// finish(expert, row in the expert, row in expert order, its N sums) for every row of D, from many threads at once.
template <class Finish>
void for_rows(const Product& product, const Matrices& matrices, ThreadPool& pool, Finish&& finish) {
  Summation summation(product, matrices, pool);
  for (int64_t expert = 0; expert < experts(product); ++expert) {
    const int64_t m = extent(product, expert, Axis::m), begin = first_row(product, product.d, expert);
    for (int64_t first = 0; first < m; first += kRows) {
      const int64_t rows = std::min(kRows, m - first);
      const double* sums = summation.rows_of(expert, first, rows);
      pool.for_each(
          rows, [&](int, int64_t row) { finish(expert, first + row, begin + first + row, sums + row * product.n); });
    }
  }
}

// [N] what is in D in a row before a launch, where the product accumulates; else zeros.
std::vector<float> row_before(const Product& product, const Matrices& matrices, int64_t expert, int64_t row) {
  std::vector<float> before(static_cast<size_t>(product.n));
  if (product.accumulates) unpack_d(product, matrices, expert, row, 0, product.n, before.data());
  return before;
}

// What the result's row is multiplied by.
float result_weight(const Product& product, const Matrices& matrices, int64_t expert, int64_t row) {
  if (!weights_result(product)) return 1;
  const float weight = weight_of_row(product, matrices.topk_weights, expert, row);
  return product.weighting == Weighting::rounded_result ? round_to(product.d.type.dtype, weight) : weight;
}

void put(const Buffer& result, Dtype dtype, int64_t index, float value) {
  if (dtype == Dtype::fp32) result.as<float>()[index] = value;
  if (dtype == Dtype::bf16) result.as<uint16_t>()[index] = to_bf16(value);
  if (dtype == Dtype::fp16) result.as<uint16_t>()[index] = to_fp16(value);
}

/// The row's element of dweights.
struct Dot {
  double sum = 0;
  double squares = 0;  // of its terms
};
Dot dot(const Product& product, const Matrices& matrices, int64_t expert, int64_t row, const double* sums) {
  std::vector<float> x(static_cast<size_t>(product.n));
  input_x(product, matrices).unpack(expert, row, 0, product.n, x.data());
  Dot result;
  for (int64_t column = 0; column < product.n; ++column) {
    const double term = sums[column] * static_cast<double>(x[static_cast<size_t>(column)]);
    result.sum += term;
    result.squares += term * term;
  }
  return result;
}

double root_of_mean(const std::vector<double>& squares) {
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, squares.size())));
}

/// A reference whose D has elements of `dtype`: finish(expert, row in the expert, its N sums, emit) calls emit(column,
/// element) for each of a row. A D that sums slots takes the sums as they are.
template <class Finish>
Reference reference(const Product& product, const Matrices& matrices, Dtype dtype, ThreadPool& pool, Finish&& finish) {
  const int64_t n = product.n, rows = result_rows(product, product.d);
  Reference result{.d = Buffer(rows * n * size_bytes(dtype)),
                   .dweights = Buffer(product.weight_gradient ? product.slots * 4 : 0)};
  const Buffer tokens(sums_slots(product) ? rows * n * static_cast<int64_t>(sizeof(double)) : 0);
  std::vector<double> dot_squares(product.weight_gradient ? product.gather_indices.size() : 0);
  for_rows(product, matrices, pool, [&](int64_t expert, int64_t row, int64_t in_order, const double* sums) {
    const auto slot = [&] { return product.gather_indices[static_cast<size_t>(in_order)]; };
    if (product.weight_gradient) {
      const Dot one = dot(product, matrices, expert, row, sums);
      result.dweights.as<float>()[slot()] = static_cast<float>(one.sum);
      dot_squares[static_cast<size_t>(in_order)] = one.squares;
    }
    if (sums_slots(product)) {  // an expert has one row of a token at most: no other thread adds to this one
      double* token = tokens.as<double>() + slot() / product.top_k * n;
      for (int64_t column = 0; column < n; ++column) token[column] += sums[column];
      return;
    }
    finish(expert, row, sums,
           [&](int64_t column, float element) { put(result.d, dtype, in_order * n + column, element); });
  });
  result.dweights_rms = root_of_mean(dot_squares);
  if (sums_slots(product))
    pool.for_each(rows, [&](int, int64_t row) {
      for (int64_t i = row * n; i < (row + 1) * n; ++i)
        put(result.d, dtype, i, static_cast<float>(tokens.as<double>()[i]));
    });
  return result;
}

}  // namespace

Reference rounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool) {
  const Dtype dtype = product.d.type.dtype;
  return reference(product, matrices, dtype, pool, [&](int64_t expert, int64_t row, const double* sums, auto&& emit) {
    const float weight = result_weight(product, matrices, expert, row);
    const std::vector<float> before = row_before(product, matrices, expert, row);
    for (int64_t column = 0; column < product.n; ++column) {
      auto value = static_cast<float>(sums[column]);
      if (product.accumulates) value += before[static_cast<size_t>(column)];
      if (product.weighting == Weighting::rounded_result) value = round_to(dtype, value);
      if (weights_result(product)) value *= weight;
      emit(column, value);
    }
  });
}

Reference unrounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool) {
  return reference(
      product, matrices, Dtype::fp32, pool, [&](int64_t expert, int64_t row, const double* sums, auto&& emit) {
        const auto weight = static_cast<double>(result_weight(product, matrices, expert, row));
        const std::vector<float> before = row_before(product, matrices, expert, row);
        for (int64_t column = 0; column < product.n; ++column)
          emit(column,
               static_cast<float>(sums[column] * weight + static_cast<double>(before[static_cast<size_t>(column)])));
      });
}

}  // namespace moetune
