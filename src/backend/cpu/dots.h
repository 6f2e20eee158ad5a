// The innermost loops of the baseline (tiles) and of the reference (dot products). They share nothing with the
// variant's microkernels, so that neither can hide a fault or a change of those.
#pragma once
#include <cstdint>

#include "workload/dtype.h"

namespace moetune {

struct Dots {
  static constexpr int kRows = 4;
  static constexpr int kMaxColumns = 4;
  static constexpr int kTileRows = 6;
  static constexpr int kMaxTileColumns = 32;
  int columns;       // that one call of `of` computes
  int tile_columns;  // and of `tile`

  /// 16-bit floats to floats, exactly.
  void (*widen_bf16)(const uint16_t* source, int64_t count, float* target);
  void (*widen_fp16)(const uint16_t* source, int64_t count, float* target);

  /// And back, rounded to nearest even.
  void (*narrow_bf16)(const float* source, int64_t count, uint16_t* target);

  /// sums [kRows, columns] of x[row] . w[column] over `depth`.
  void (*of)(const double* const* x, const double* const* w, int64_t depth, double* sums);

  /// sums [kTileRows, tile_columns] of x[row] times panel [depth, tile_columns].
  void (*tile)(const float* const* x, const float* panel, int64_t depth, float* sums);
};

/// For the best instruction set that this machine has.
const Dots& dots();

/// `count` elements of `dtype` to floats.
void widen(const Dots& dots, Dtype dtype, const void* source, int64_t count, float* target);

}  // namespace moetune
