// The plain product in double: expert after expert, rows of X times rows of W; and where its sums go, with how many
// roundings.
#include "backend/cpu/reference.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/dots.h"

namespace moetune {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 16;

// Row `row` of a matrix [.., k] of `dtype`; `floats` holds k floats.
void widen_row(Dtype dtype, const void* matrix, int64_t row, int64_t k, float* floats, double* target) {
  widen(dots(), dtype, static_cast<const std::byte*>(matrix) + row * k * size_bytes(dtype), k, floats);
  std::copy(floats, floats + k, target);
}

// Rows [0, rows) times columns [0, columns), Dots::kRows by dots.columns at a time; where there are fewer, the last is
// taken again and its result dropped. emit(row, column, sum).
template <class Emit>
void block(const double* x, int64_t rows, const double* w, int64_t columns, int64_t k, Emit&& emit) {
  const int step = dots().columns;
  for (int64_t row = 0; row < rows; row += Dots::kRows)
    for (int64_t column = 0; column < columns; column += step) {
      const double* x_rows[Dots::kRows];
      const double* w_rows[Dots::kMaxColumns];
      double sums[Dots::kRows * Dots::kMaxColumns];
      for (int r = 0; r < Dots::kRows; ++r) x_rows[r] = x + std::min(row + r, rows - 1) * k;
      for (int n = 0; n < step; ++n) w_rows[n] = w + std::min(column + n, columns - 1) * k;
      dots().of(x_rows, w_rows, k, sums);
      for (int64_t r = 0; r < std::min<int64_t>(Dots::kRows, rows - row); ++r)
        for (int64_t n = 0; n < std::min<int64_t>(step, columns - column); ++n)
          emit(row + r, column + n, sums[r * step + n]);
    }
}

// emit(row, column, sum) once for each element of the product, `row` in expert order, from many threads at once.
template <class Emit>
void product(const Args& args, const Shape& shape, ThreadPool& pool, Emit&& emit) {
  const Dtype dtype = shape.layer.dtype;
  const int64_t n = args.n, k = args.k;
  constexpr auto kDouble = static_cast<int64_t>(sizeof(double));
  const Buffer x(kRows * k * kDouble);
  std::vector<Buffer> w;  // [threads][kColumns, k], then floats on their way
  for (int thread = 0; thread < pool.size(); ++thread) w.emplace_back(k * (kColumns * kDouble + 4));
  const auto floats_of = [&](int thread) {
    return reinterpret_cast<float*>(w[static_cast<size_t>(thread)].as<double>() + kColumns * k);
  };
  int64_t first = 0;  // row of the chunk in expert order
  for (int expert = 0; expert < args.experts; ++expert)
    for (int64_t left = args.m_sizes[expert]; left > 0;) {
      const int64_t rows = std::min(left, kRows);
      pool.for_each(rows, [&](int thread, int64_t r) {
        const int64_t row = first + r;
        widen_row(dtype, args.x, shape.fusion.permute_x ? args.gather_indices[row] / args.top_k : row, k,
                  floats_of(thread), x.as<double>() + r * k);
      });
      pool.for_each((n + kColumns - 1) / kColumns, [&](int thread, int64_t tile) {
        auto* panel = w[static_cast<size_t>(thread)].as<double>();
        const int64_t column = tile * kColumns, columns = std::min(kColumns, n - column);
        for (int64_t c = 0; c < columns; ++c)
          widen_row(dtype, args.w, expert * n + column + c, k, floats_of(thread), panel + c * k);
        block(x.as<double>(), rows, panel, columns, k,
              [&](int64_t r, int64_t c, double sum) { emit(first + r, column + c, sum); });
      });
      first += rows;
      left -= rows;
    }
}

int64_t rows(const Args& args) {
  int64_t sum = 0;
  for (int expert = 0; expert < args.experts; ++expert) sum += args.m_sizes[expert];
  return sum;
}

float weight(const Args& args, const Shape& shape, int64_t row) {
  return round_to(shape.layer.dtype, args.topk_weights[args.gather_indices[row]]);
}

}  // namespace

Buffer rounded_reference(const Args& args, const Shape& shape, ThreadPool& pool) {
  const Dtype dtype = shape.layer.dtype;
  Buffer result(rows(args) * args.n * size_bytes(dtype));
  product(args, shape, pool, [&](int64_t row, int64_t column, double sum) {
    auto value = static_cast<float>(sum);
    if (shape.fusion.topk_weights) value = round_to(dtype, value) * weight(args, shape, row);
    const int64_t index = row * args.n + column;
    if (dtype == Dtype::fp32) result.as<float>()[index] = value;
    if (dtype == Dtype::bf16) result.as<uint16_t>()[index] = to_bf16(value);
    if (dtype == Dtype::fp16) result.as<uint16_t>()[index] = to_fp16(value);
  });
  return result;
}

Buffer unrounded_reference(const Args& args, const Shape& shape, ThreadPool& pool) {
  Buffer result(rows(args) * args.n * 4);
  product(args, shape, pool, [&](int64_t row, int64_t column, double sum) {
    if (shape.fusion.topk_weights) sum *= static_cast<double>(weight(args, shape, row));
    result.as<float>()[row * args.n + column] = static_cast<float>(sum);
  });
  return result;
}

}  // namespace moetune
