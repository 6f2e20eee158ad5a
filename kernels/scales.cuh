// Scales of fp8 operands: fp32, of blocks along k or of rows. Args says where they lie.
#pragma once
#include "epilogue.cuh"
#include "ptx.cuh"
#include "scales.h"

namespace moetune {

// A scale for each row of X and 128 columns.
struct BlockScalesOfX {
  static constexpr bool at_end = false;
  static constexpr int stage_bytes(int rows, int columns, int = 1) { return x_block_scale_bytes(rows, columns); }

  // In a stage: [columns / 128][rows].
  template <class Block, int threads>
  struct Loader {
    static constexpr int count = (Block::block_m + threads - 1) / threads;
    unsigned row[count];  // where its scales begin, in floats

    __forceinline__ void begin(const Block& block, const typename Block::Tile& tile, const auto&, const auto& row_at) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int r = i * threads + static_cast<int>(threadIdx.x % threads);
        row[i] = static_cast<unsigned>((r < tile.rows ? row_at(r) : 0) * block.args.x_scale_row);
      }
    }
    __forceinline__ void copy(const Block& block, const typename Block::Tile& tile, int stage, int k) const {
#pragma unroll
      for (int part = 0; part < Block::block_k / kScaleBlock; ++part) {
        const int column = k + part * kScaleBlock;
        const float* const from = block.args.x_scales + column / kScaleBlock * block.args.x_scale_step;
        float* const to = reinterpret_cast<float*>(block.x_scales(stage)) + part * Block::block_m;
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const int r = i * threads + static_cast<int>(threadIdx.x % threads);
          if (r < Block::block_m)
            cp_async<4>(shared_address(to + r), from + row[i], r < tile.rows && column < block.args.k);
        }
      }
    }
  };
  static __forceinline__ float of(const Args& args, long long row, long long column) {
    return args.x_scales[row * args.x_scale_row + column / kScaleBlock * args.x_scale_step];
  }
};

// Block `number` of W of a tile from `column` on, in the expert. Where columns are combined: of its gates, or of its
// ups.
template <class Block>
__forceinline__ int w_block(const Args& args, int column, int number) {
  if constexpr (Block::Function::columns_per_output > 1)
    return static_cast<int>(w_row<Block>(args, column + number * 8)) / kScaleBlock;
  return column / kScaleBlock + number;
}

// A scale for each 128 rows of an expert's W and 128 columns.
struct BlockScalesOfW {
  static constexpr bool at_end = false;
  static constexpr int stage_bytes(int rows, int columns, int per_output) {
    return w_block_scale_bytes(rows, columns, per_output);
  }

  // In a stage: [columns / 128][w_blocks(rows, per_output)].
  template <class Block, int threads>
  struct Loader {
    static constexpr int blocks = w_blocks(Block::block_n, Block::Function::columns_per_output);
    const float* from = nullptr;  // this thread's block at the first column
    bool inside = false;

    __forceinline__ void begin(const Block& block, const typename Block::Tile& tile, const auto&...) {
      const Args& args = block.args;
      const int number = static_cast<int>(threadIdx.x % threads) % blocks;
      const int first = w_block<Block>(args, tile.column, number);
      from = static_cast<const float*>(args.w_scales) + tile.expert * args.w_scale_expert + first * args.w_scale_row;
      inside = static_cast<long long>(first) * kScaleBlock < args.n;
    }
    __forceinline__ void copy(const Block& block, const typename Block::Tile&, int stage, int k) const {
      const int place = threadIdx.x % threads, column = k + place / blocks * kScaleBlock;
      if (place < Block::block_k / kScaleBlock * blocks)
        cp_async<4>(shared_address(block.w_scales(stage) + place * 4),
                    from + column / kScaleBlock * block.args.w_scale_step, inside && column < block.args.k);
    }
  };
  // `row` counts through all experts.
  static __forceinline__ float of(const Args& args, long long row, long long column) {
    const long long expert = row / args.n;
    return static_cast<const float*>(
        args.w_scales)[expert * args.w_scale_expert + (row - expert * args.n) / kScaleBlock * args.w_scale_row +
                       column / kScaleBlock * args.w_scale_step];
  }
};

// One scale for each row, or for all. Of a tile's stages only the last has them.
template <class Block, int threads, int rows>
struct RowScalesLoader {
  static constexpr int count = (rows + threads - 1) / threads;
  const float* from = nullptr;
  unsigned row[count];  // in floats, from there
  int end = 0, last_k = 0;

  __forceinline__ void begin(const auto& steps, const float* scales, int rows_there, const auto& offset_of) {
    from = scales, end = rows_there, last_k = (steps.end - 1) * Block::block_k;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads);
      row[i] = static_cast<unsigned>(r < end ? offset_of(r) : 0);
    }
  }
  __forceinline__ void copy(char* stage, int k) const {
    if (k != last_k) return;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads);
      if (r < rows) cp_async<4>(shared_address(stage + r * 4), from + row[i], r < end);
    }
  }
};

struct RowScalesOfX {
  static constexpr bool at_end = true;
  static constexpr int stage_bytes(int rows, int, int = 1) { return row_scale_bytes(rows); }

  template <class Block, int threads>
  struct Loader {
    RowScalesLoader<Block, threads, Block::block_m> rows;
    __forceinline__ void begin(const Block& block, const typename Block::Tile& tile, const auto& steps,
                               const auto& row_at) {
      rows.begin(steps, block.args.x_scales, tile.rows, [&](int r) { return row_at(r) * block.args.x_scale_row; });
    }
    __forceinline__ void copy(const Block& block, const typename Block::Tile&, int stage, int k) const {
      rows.copy(block.x_scales(stage), k);
    }
  };
  static __forceinline__ float of(const Args& args, long long row, long long) {
    return args.x_scales[row * args.x_scale_row];
  }
};

struct RowScalesOfW {
  static constexpr bool at_end = true;
  static constexpr int stage_bytes(int rows, int, int = 1) { return row_scale_bytes(rows); }

  template <class Block, int threads>
  struct Loader {
    RowScalesLoader<Block, threads, Block::block_n> rows;
    __forceinline__ void begin(const Block& block, const typename Block::Tile& tile, const auto& steps, const auto&) {
      const Args& args = block.args;
      constexpr bool joined = Block::Function::columns_per_output > 1;
      const float* const of_expert = static_cast<const float*>(args.w_scales) + tile.expert * args.w_scale_expert;
      rows.begin(steps, joined ? of_expert : of_expert + tile.column * args.w_scale_row,
                 static_cast<int>(args.n) - tile.column,
                 [&](int r) { return (joined ? w_row<Block>(args, tile.column + r) : r) * args.w_scale_row; });
    }
    __forceinline__ void copy(const Block& block, const typename Block::Tile&, int stage, int k) const {
      rows.copy(block.w_scales(stage), k);
    }
  };
  static __forceinline__ float of(const Args& args, long long row, long long) {
    const long long expert = row / args.n;
    return static_cast<const float*>(
        args.w_scales)[expert * args.w_scale_expert + (row - expert * args.n) * args.w_scale_row];
  }
};

// A scale for each `columns` columns of a row of W, of element `Scale`; with zero points, of which two rows share a
// byte.
template <int columns, class Scale, bool zero_points>
struct GroupScalesOfW : NoScales {
  static __forceinline__ float of(const Args& args, long long row, long long column) {
    const long long expert = row / args.n;
    return to_float(static_cast<const Scale*>(
        args.w_scales)[expert * args.w_scale_expert + (row - expert * args.n) * args.w_scale_row +
                       column / columns * args.w_scale_step]);
  }
  // A nibble, like the elements that it is subtracted from.
  static __forceinline__ float zero(const Args& args, long long row, long long column) {
    if constexpr (!zero_points) return 0;
    const long long expert = row / args.n, in_expert = row - expert * args.n;
    const long long even = expert * args.w_scale_expert + in_expert / 2 * 2 * args.w_scale_row;
    return element_at(static_cast<const nibbles*>(args.w_zeros), even + column / columns * 2 + in_expert % 2);
  }
};

}  // namespace moetune
