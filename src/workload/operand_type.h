// The type of an operand: what its elements are in memory, what scales them, and what the multiplier reads. Not where
// its rows lie (product.h).
#pragma once
#include <cstdint>

#include "workload/dtype.h"

namespace moetune {

/// What one scale covers.
enum class ScaleKind {
  none,
  tensor,   // a matrix: of one expert, or the ragged one
  channel,  // a row of memory
  block,    // rows x columns
};

/// Scales of an operand, in fp32: the value of an element is element * scale. Blocks of an operand with one matrix an
/// expert restart with each expert; those of a ragged one are counted over its rows in memory. D has none.
struct Scales {
  ScaleKind kind = ScaleKind::none;
  int64_t rows = 0, columns = 0;  // of a block
  bool operator==(const Scales&) const = default;
};
inline Scales block_scales(int64_t rows, int64_t columns) { return {ScaleKind::block, rows, columns}; }

/// Kernels multiply elements of the stage's dtype: a transform makes these from elements in memory, unless both dtypes
/// are the same.
struct OperandType {
  Dtype dtype = Dtype::bf16;  // in memory
  Dtype stage = Dtype::bf16;  // in shared memory, as the multiplier reads them
  Scales scales = {};
  bool operator==(const OperandType&) const = default;
};

inline bool has_scales(const OperandType& type) { return type.scales.kind != ScaleKind::none; }

/// Elements that are multiplied as they lie in memory, without scales.
inline OperandType plain_type(Dtype dtype) { return {.dtype = dtype, .stage = dtype}; }

}  // namespace moetune
