// Scales of fp8 operands in the mma variant: cp.async copies those of blocks beside each stage that ends a part of the
// sums along k, and those of rows once for each tile.
#pragma once
#include "mma/mma_operands.cuh"
#include "scales.cuh"

namespace moetune {

// Scales of X or W of a tile. A thread copies every threads-th.
template <class Config, bool is_x>
struct MmaOperandScales {
  using Operand = MmaOperand<Config, is_x>;
  using Scales = typename Operand::Type::Scales;
  static constexpr int per_output = is_x ? 1 : Config::Function::columns_per_output,
                       parts = is_x ? 1 : Config::problem.scale_parts;
  static constexpr int bytes = parts * Scales::stage_bytes(Operand::block, kScaleBlock, per_output), count = bytes / 4;
  static constexpr int copies = (count + Operand::threads - 1) / Operand::threads;
  static constexpr int rows = is_x || Scales::at_end ? 1 : kScaleBlock;  // of the product, of each scale

  int there;              // scales of rows that exist
  unsigned from[copies];  // those of the first columns along k, in floats

  static __forceinline__ int number(int i) { return static_cast<int>(threadIdx.x) + i * Operand::threads; }

  // Row `number` of a tile's scales of W, in the expert; `first` is the tile's first.
  static __forceinline__ long long row_of_scales(const Args& args, int column, int first, int number) {
    if constexpr (per_output == 1) return first + number;
    if constexpr (Scales::at_end) return w_row<Config>(args, column + number);
    if constexpr (parts == 1) return w_block<Config>(args, column, number);
    return w_block<Config>(args, column + number / 2 * (Operand::block / parts), number % 2);
  }
  // Of a tile's parts those that begin before the last column.
  static __forceinline__ int count_of_combined(const Args& args, int column) {
    if constexpr (parts == 1) return count;
    constexpr int width = Operand::block / parts;
    return min(count, (static_cast<int>(args.n) - column + width - 1) / width * 2);
  }
  __forceinline__ void begin_tile(const Args& args, const auto& tile) {
    const int first = tile.column / rows;
    const int end = is_x                                ? tile.rows
                    : per_output > 1 && !Scales::at_end ? count_of_combined(args, tile.column)
                                                        : static_cast<int>((args.n + rows - 1) / rows) - first;
    there = tile.rows == 0 ? 0 : end;
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      from[i] = 0;
      if (number(i) >= there) continue;
      if constexpr (is_x)
        from[i] = memory_row<Operand::order>(args, tile.row + number(i)) * args.x_scale_row;
      else
        from[i] =
            tile.expert * args.w_scale_expert + row_of_scales(args, tile.column, first, number(i)) * args.w_scale_row;
    }
  }
  __forceinline__ void copy(const Args& args, float* to, int k) const {
    const float* const scales = (is_x ? args.x_scales : static_cast<const float*>(args.w_scales)) +
                                k / kScaleBlock * (is_x ? args.x_scale_step : args.w_scale_step);
#pragma unroll
    for (int i = 0; i < copies; ++i)
      if (number(i) < count) cp_async<4>(shared_address(to + number(i)), scales + from[i], number(i) < there);
  }
};

template <class Config>
struct MmaScales {
  using X = MmaOperandScales<Config, true>;
  using W = MmaOperandScales<Config, false>;
  static constexpr bool at_end = X::Scales::at_end;
  static constexpr int bytes = X::bytes + W::bytes;
  static_assert(at_end == W::Scales::at_end, "scales of both operands are of blocks or of rows");
  X x;
  W w;

  __forceinline__ void begin_tile(const Args& args, const auto& tile) {
    x.begin_tile(args, tile);
    w.begin_tile(args, tile);
  }
  // Of the columns from `k` on.
  __forceinline__ void copy(const Args& args, float* to, int k) const {
    x.copy(args, to, k);
    w.copy(args, to + X::count, k);
  }
};
struct NoMmaScales {
  static constexpr bool at_end = false;
  static constexpr int bytes = 0;
  __forceinline__ void begin_tile(const auto&...) {}
};

template <class Config>
using MmaScalesOf =
    typename Choice<(Config::X::Scales::stage_bytes(1, kScaleBlock) > 0), MmaScales<Config>, NoMmaScales>::type;

}  // namespace moetune
