// Dot products of a few rows with a few rows: the loops of the baseline and of the reference. They share nothing with
// the variant's microkernels, so that neither can hide a fault or a change of those.
#pragma once
#include <cstdint>

namespace moetune {

struct Dots {
  static constexpr int kRows = 4;
  static constexpr int kMaxColumns = 4;
  int columns;  // that one call computes

  /// 16-bit floats to floats, exactly.
  void (*widen_bf16)(const uint16_t* source, int64_t count, float* target);
  void (*widen_fp16)(const uint16_t* source, int64_t count, float* target);

  /// sums [kRows, columns] of x[row] . w[column] over `depth`.
  void (*of_floats)(const float* const* x, const float* const* w, int64_t depth, float* sums);
  void (*of_doubles)(const double* const* x, const double* const* w, int64_t depth, double* sums);
};

/// For the best instruction set that this machine has.
const Dots& dots();

}  // namespace moetune
