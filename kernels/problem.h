// What a kernel is compiled for beside its knobs: how its operands lie in memory and in a stage, and what becomes of
// the sums. The host prints it into the Config of a unit; legality, layouts and device code read the same struct.
#pragma once
#include "reordered.h"
#include "rows.h"
#include "tiles.h"

namespace moetune {

/// Bytes of `count` elements of so many bits.
template <class Count>
constexpr Count bytes_of(Count count, int bits) {
  return bits < 8 ? count / (8 / bits) : count * (bits / 8);
}

/// An operand has the size of an element in memory and that of one in a stage: they differ where a transform widens it
/// on its way to the multiplier.
struct KernelProblem {
  RowOrder x_rows = RowOrder::in_place, w_rows = RowOrder::in_place, y_rows = RowOrder::in_place;
  bool x_mn_major = false, w_mn_major = false;  // each row in memory is a step along k
  int x_memory_bits = 16, x_stage_bits = 16;
  int w_memory_bits = 16, w_stage_bits = 16;
  int w_block_bytes = 0;  // of a W that is reordered, of a block (reordered.h); 0: W lies in rows
  int y_bits = 16;
  int x_scale_bytes = 0, w_scale_bytes = 0;  // beside each stage or, where scales multiply sums at the end, each tile
  bool scales_at_end = false;                // scales multiply the sums of a tile, not those of parts along k
  bool promotes = false;                     // sums of parts along k are added to the tile's in fp32
  int experts = 0;                           // 0: not known when the kernel is compiled
  int columns_per_output = 1;                // columns of the product that make one of Y
  int weight_bytes = 2;                      // of the top-k weight of a row of Y
  bool weighs_x = false, weighs_y = false;   // rows of X or of Y are multiplied by their top-k weights
  bool accumulates = false;                  // the product is added to Y
  bool interleaved = false;                  // gate and up rows of W alternate; otherwise all gates come first
  bool adds_bias = false;
  bool stores_h = false;
  bool makes_gates = false;  // Y is dH: the gradients of gates and ups
  // Bytes of one access, as the alignment of rows allows: of cp.async to X and W, and of stores to Y.
  int x_load_bytes = 16, w_load_bytes = 16, store_bytes = 16;
  int scale_parts = 1;  // equal parts of a quantised tile's columns, each with one scale for gates and one for ups

  constexpr bool operator==(const KernelProblem&) const = default;

  /// Whether elements of W are widened in registers, of a stage that holds them as they lie in memory.
  constexpr bool w_in_registers() const { return w_block_bytes > 0; }
  /// Bytes of a stage's W.
  constexpr int w_stage_bytes(int rows, int columns) const {
    return w_in_registers() ? rows / kReorderedRows * (columns / kReorderedColumns) * w_block_bytes
                            : bytes_of(rows * columns, w_stage_bits);
  }

  /// Whether k is an expert's number of rows: rows of X and W are both steps along k.
  constexpr bool sums_rows() const { return x_mn_major; }
  /// Whether rows that are read along k aren't in expert order.
  constexpr bool permutes_x() const { return gathers_rows(x_rows, w_rows, sums_rows()); }
  /// Whether rows of Y aren't in expert order, or are weighted.
  constexpr bool looks_up_rows() const { return y_rows != RowOrder::in_place || weighs_y; }
  /// Whether Y is stored in fp32, from registers.
  constexpr bool stores_sums() const { return y_bits == 32; }
  /// Whether Y is fp8 with a scale for each kScaleBlock columns of a row.
  constexpr bool quantises() const { return y_bits == 8; }
};

}  // namespace moetune
