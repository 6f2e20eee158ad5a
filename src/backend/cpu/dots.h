// The innermost loops of the baseline (tiles, and dot products for few rows) and of the reference (dot products of
// doubles). They share nothing with the variant's microkernels, so that they hide no fault and no change of those.
#pragma once
#include <cstddef>
#include <cstdint>

#include "workload/dtype.h"

namespace moetune {

struct Dots {
  static constexpr int kRows = 4;
  static constexpr int kMaxColumns = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kMaxTileColumns = 32;
  int columns;       // that one call of `of` or of `few` computes
  int tile_columns;  // and of `tile`

  /// 16-bit floats to floats, exactly.
  void (*widen_bf16)(const uint16_t* source, int64_t count, float* target);
  void (*widen_fp16)(const uint16_t* source, int64_t count, float* target);

  /// And back, rounded to nearest even.
  void (*narrow_bf16)(const float* source, int64_t count, uint16_t* target);

  /// sums [kRows, columns] of x[row] . w[column] over `depth`.
  void (*of)(const double* const* x, const double* const* w, int64_t depth, double* sums);

  /// The same of rows of W as they lie in memory, summed in floats. `ahead`: bytes from there to what is read next.
  using Few = void(const float* const* x, const std::byte* const* w, int64_t depth, int64_t ahead, float* sums);
  Few *few_bf16, *few_fp16, *few_fp32;

  /// sums [kTileRows, tile_columns] of x[row] times panel [depth, tile_columns].
  void (*tile)(const float* const* x, const float* panel, int64_t depth, float* sums);
};

/// For the best instruction set that this machine has.
const Dots& dots();

/// The one of `few` for `dtype`.
Dots::Few* few(const Dots& dots, Dtype dtype);

/// `count` elements of `dtype` to floats.
void widen(const Dots& dots, Dtype dtype, const void* source, int64_t count, float* target);

}  // namespace moetune
