// The grouped product in its plain form: expert after expert, rows of X times rows of W. What the baseline and the
// reference share; how they round and where they store is theirs.
#pragma once
#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/dots.h"
#include "backend/cpu/thread_pool.h"
#include "kernels/args.h"
#include "workload/shape.h"

namespace moetune {

/// Blocks of a plain product: fixed, for nobody tunes them.
constexpr int64_t kPlainRows = 256;
constexpr int64_t kPlainColumns = 16;

/// Memory that one product needs, kept by the caller so that launches don't allocate.
template <class T>
struct PlainWorkspace {
  Buffer x;               // [kPlainRows, k]
  std::vector<Buffer> w;  // [threads][kPlainColumns, k], then floats on their way to T
};

/// Row `row` of a matrix [.., k] of `dtype` to T; `floats` holds k floats.
template <class T>
void widen_row(const Dots& dots, Dtype dtype, const void* matrix, int64_t row, int64_t k,
               [[maybe_unused]] float* floats, T* target) {
  const auto* from = static_cast<const std::byte*>(matrix) + row * k * size_bytes(dtype);
  const auto* source = reinterpret_cast<const float*>(from);
  if constexpr (std::is_same_v<T, float>) floats = target;
  if (dtype == Dtype::bf16) dots.widen_bf16(reinterpret_cast<const uint16_t*>(from), k, floats);
  if (dtype == Dtype::fp16) dots.widen_fp16(reinterpret_cast<const uint16_t*>(from), k, floats);
  if (dtype != Dtype::fp32) source = floats;
  if (source != static_cast<const void*>(target)) std::copy(source, source + k, target);
}

/// Rows [0, rows) times columns [0, columns), Dots::kRows by dots.columns at a time; where there are fewer, the last
/// is taken again and its result dropped. emit(row, column, sum).
template <class T, class Emit>
void plain_block(const Dots& dots, const T* x, int64_t rows, const T* w, int64_t columns, int64_t k, Emit&& emit) {
  const int step = dots.columns;
  for (int64_t row = 0; row < rows; row += Dots::kRows)
    for (int64_t column = 0; column < columns; column += step) {
      const T* x_rows[Dots::kRows];
      const T* w_rows[Dots::kMaxColumns];
      T sums[Dots::kRows * Dots::kMaxColumns];
      for (int r = 0; r < Dots::kRows; ++r) x_rows[r] = x + std::min(row + r, rows - 1) * k;
      for (int n = 0; n < step; ++n) w_rows[n] = w + std::min(column + n, columns - 1) * k;
      if constexpr (std::is_same_v<T, float>)
        dots.of_floats(x_rows, w_rows, k, sums);
      else
        dots.of_doubles(x_rows, w_rows, k, sums);
      for (int64_t r = 0; r < std::min<int64_t>(Dots::kRows, rows - row); ++r)
        for (int64_t n = 0; n < std::min<int64_t>(step, columns - column); ++n)
          emit(row + r, column + n, sums[r * step + n]);
    }
}

/// emit(row, column, sum) once for each element of the product, `row` in expert order, from many threads at once.
/// T is float or double: what is multiplied and summed.
template <class T, class Emit>
void plain_gemm(const Args& args, const Shape& shape, ThreadPool& pool, PlainWorkspace<T>& workspace, Emit&& emit) {
  const Dots& dots = moetune::dots();
  const Dtype dtype = shape.layer.dtype;
  const int64_t n = args.n, k = args.k;
  if (workspace.x.bytes() < kPlainRows * k * static_cast<int64_t>(sizeof(T)))
    workspace.x = Buffer(kPlainRows * k * static_cast<int64_t>(sizeof(T)));
  workspace.w.resize(static_cast<size_t>(pool.size()));
  for (Buffer& w : workspace.w)
    if (w.bytes() < k * static_cast<int64_t>(kPlainColumns * sizeof(T) + 4))
      w = Buffer(k * static_cast<int64_t>(kPlainColumns * sizeof(T) + 4));
  const auto floats_of = [&](int thread) {
    return reinterpret_cast<float*>(workspace.w[thread].template as<T>() + kPlainColumns * k);
  };
  int64_t first = 0;  // row of the chunk in expert order
  for (int expert = 0; expert < args.experts; ++expert)
    for (int64_t left = args.m_sizes[expert]; left > 0;) {
      const int64_t rows = std::min(left, kPlainRows);
      T* x = workspace.x.template as<T>();
      pool.for_each(rows, [&](int thread, int64_t r) {
        const int64_t row = first + r;
        widen_row(dots, dtype, args.x, shape.fusion.permute_x ? args.gather_indices[row] / args.top_k : row, k,
                  floats_of(thread), x + r * k);
      });
      pool.for_each((n + kPlainColumns - 1) / kPlainColumns, [&](int thread, int64_t tile) {
        T* w = workspace.w[thread].template as<T>();
        const int64_t column = tile * kPlainColumns, columns = std::min(kPlainColumns, n - column);
        for (int64_t c = 0; c < columns; ++c)
          widen_row(dots, dtype, args.w, expert * n + column + c, k, floats_of(thread), w + c * k);
        plain_block(dots, x, rows, w, columns, k,
                    [&](int64_t r, int64_t c, T sum) { emit(first + r, column + c, sum); });
      });
      first += rows;
      left -= rows;
    }
}

}  // namespace moetune
