// The innermost loops of the cpu variant, once for each instruction set. Not how blocks are cut or dealt to threads.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "workload/dtype.h"

namespace moetune {

enum class Isa { generic, avx2, avx512 };
std::string_view name(Isa isa);

/// What this machine can run, the best last.
std::vector<Isa> usable_isas();

/// Rows of A as floats: element (row, k) is data[row * row_stride + k * depth_stride].
struct LeftFactor {
  const float* data;
  int64_t row_stride;
  int64_t depth_stride;
};

/// The loops for one instruction set. Strides count elements; x, panels and sums are floats.
struct Microkernel {
  Isa isa;
  int tile_rows;     // of the register tile; divides kCpuTileRows
  int tile_columns;  // of the register tile, and of a packed panel of B; divides kCpuTileColumns
  int panel_rows;    // of a packed panel of A: whole register tiles; divides kCpuPanelRows

  /// `count` values of `dtype` to floats, exactly.
  void (*unpack)(Dtype dtype, const void* source, int64_t count, float* target);

  /// Up to tile_columns rows of W, [columns, depth] with `stride`, to a panel [depth, tile_columns]. Where there are
  /// fewer, the last one fills the rest.
  void (*pack)(Dtype dtype, const void* w, int64_t stride, int64_t columns, int64_t depth, float* panel);

  /// `count` values that lie one after another, to one row of panels that are `width` wide, tile_columns or panel_rows:
  /// value i to target[i / width * panel_stride + i % width]. Zeros fill the rest of the last panel's row. With a
  /// weight, value = round(value * weight).
  void (*spread)(Dtype dtype, const void* source, int64_t count, const float* weight, int width, int64_t panel_stride,
                 float* target);

  /// sums [rows, tile_columns] = (or +=, where `add`) a [rows, depth] times a panel [depth, tile_columns].
  /// 1 <= rows <= tile_rows.
  void (*tile)(int rows, int64_t depth, const LeftFactor& a, const float* panel, float* sums, int64_t sums_stride,
               bool add);

  /// The same for a few rows x, with W [columns, depth] as it lies in memory: sums [rows, columns].
  void (*direct)(Dtype dtype, int rows, int64_t columns, int64_t depth, const float* x, int64_t x_stride, const void* w,
                 int64_t w_stride, float* sums, int64_t sums_stride, bool add);

  /// y = round(sum), and with a weight y = round(y * weight).
  void (*store)(Dtype dtype, const float* sums, int64_t count, const float* weight, void* y);

  /// Multiplies and adds in registers alone: fma_flops floating-point operations a step.
  float (*fma_loop)(int64_t steps);
  double fma_flops;

  /// Reads `count` floats, a multiple of 1024.
  float (*read)(const float* source, int64_t count);
};

/// `isa` must be usable.
const Microkernel& microkernel(Isa isa);
/// The best that this machine can run.
const Microkernel& microkernel();

}  // namespace moetune
