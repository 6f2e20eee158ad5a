// Room for scales beside a stage of an fp8 operand, and for a tile of an fp8 result. Both compilers read this.
#pragma once
#include "args.h"

namespace moetune {

/// The most blocks of kScaleBlock rows that `rows` rows touch, from a multiple of `rows` on.
constexpr int blocks_across(int rows) {
  const int step = rows & -rows;  // tiles begin at multiples of it
  return (2 * kScaleBlock - 1 - (step < kScaleBlock ? step : kScaleBlock) + rows) / kScaleBlock;
}

/// The same of W's rows. Where two columns are combined a tile's gates lie in one block, and so do its ups.
constexpr int w_blocks(int rows, int per_output) { return per_output > 1 ? 2 : blocks_across(rows); }

/// Bytes of a stage's scales, fp32: of blocks of 1 x 128 in X, of 128 x 128 in W, and of rows.
constexpr int x_block_scale_bytes(int rows, int columns) { return columns / kScaleBlock * rows * 4; }
constexpr int w_block_scale_bytes(int rows, int columns, int per_output) {
  return columns / kScaleBlock * w_blocks(rows, per_output) * 4;
}
constexpr int row_scale_bytes(int rows) { return rows * 4; }

/// Room for a quantised tile whose rows several warps share: rows of bytes, padded so that threads write to different
/// banks; the largest magnitude that each warp has of a row; and the factor of a row.
template <int rows, int warps>
struct QuantisedTile {
  unsigned char row[rows][kScaleBlock + 16];
  float most[warps][rows];
  float factor[rows];
};
constexpr int quantised_tile_bytes(int rows, int warps) { return rows * (kScaleBlock + 16 + 4 * (warps + 1)); }

}  // namespace moetune
