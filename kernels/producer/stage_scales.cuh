// The role of scales where tensor copies load X and W: a warp of the producer writes the scales of each stage. Where
// cp.async loads X or W, the threads that issue it copy scales too.
#pragma once
#include "epilogue.cuh"
#include "producer/block_tiles.cuh"

namespace moetune {

// Scales of blocks pass through registers, those of several parts of kScaleBlock columns at a time: rows are read in
// wide requests, and a stage gets them in few writes. wgmma needs nearly all of shared memory's bandwidth.
template <class Block>
struct BlockScalesByWarp {
  using Tile = Block::Tile;
  static constexpr int rows = (Block::block_m + 31) / 32;  // of X, a lane
  static constexpr int parts = Block::block_k / kScaleBlock, depth = rows > 4 ? 2 : 4, stages = depth / parts;
  static constexpr int blocks = w_blocks(Block::block_n, Block::Function::columns_per_output);  // of W, a part

  const Args& args;
  const int lane = threadIdx.x % 32, all_parts = static_cast<int>((args.k + kScaleBlock - 1) / kScaleBlock);
  unsigned row[rows];  // where its scales begin, in floats
  bool inside[rows], wide, w_inside;
  const float* w_from;
  float x[rows][depth], w;

  __forceinline__ void begin(const Tile& tile, const Steps& steps, const auto& row_at) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      inside[r] = r * 32 + lane < tile.rows;
      row[r] = static_cast<unsigned>((inside[r] ? row_at(r * 32 + lane) : 0) * args.x_scale_row);
    }
    const auto aligned = reinterpret_cast<unsigned long long>(args.x_scales) / 4 | args.x_scale_row |
                         static_cast<unsigned long long>(all_parts) | steps.first * parts;
    wide = args.x_scale_step == 1 && aligned % depth == 0;
    const int block = w_block<Block>(args, tile.column, lane % blocks);
    w_inside = static_cast<long long>(block) * kScaleBlock < args.n && lane / blocks < depth;
    w_from = static_cast<const float*>(args.w_scales) + tile.expert * args.w_scale_expert + block * args.w_scale_row;
  }
  // Parts from `first` on.
  __forceinline__ void read(int first) {
    const float* const from = args.x_scales + first * args.x_scale_step;
#pragma unroll
    for (int r = 0; r < rows; ++r)
      if (wide) {
        using Wide = typename Choice<depth == 4, float4, float2>::type;
        *reinterpret_cast<Wide*>(x[r]) = *reinterpret_cast<const Wide*>(from + row[r]);
      } else {
#pragma unroll
        for (int i = 0; i < depth; ++i) x[r][i] = first + i < all_parts ? from[row[r] + i * args.x_scale_step] : 0;
      }
    const int part = first + lane / blocks;
    w = w_inside && part < all_parts ? w_from[part * args.w_scale_step] : 0;
  }
  // The stage `number` of those that were read.
  __forceinline__ void write(const Block& block, int stage, int number) const {
    float* const to = reinterpret_cast<float*>(block.x_scales(stage));
#pragma unroll
    for (int p = 0; p < parts; ++p)
#pragma unroll
      for (int r = 0; r < rows; ++r)
        if (const int at = r * 32 + lane; at < Block::block_m)
          to[p * Block::block_m + at] = inside[r] ? x[r][number * parts + p] : 0;
    if (const int at = lane - number * parts * blocks; at >= 0 && at < parts * blocks)
      reinterpret_cast<float*>(block.w_scales(stage))[at] = w;
  }
};

template <class Scales>
constexpr bool in_blocks = false;
template <>
constexpr bool in_blocks<BlockScalesOfX> = true;

template <class Block>
struct StageScales {
  // All lanes of the warp call it.
  static __forceinline__ void load_all(const Block& block) {
    typename Block::Slot slot;
    typename Block::Stage stage;
    block.pdl_wait_for_x();
    while (true) {
      const auto tile = BlockTiles<Block>::take(block, slot);
      if (tile.expert < 0) break;
      const Steps steps = block.steps_of(tile);
      const auto row_of_x = [&](int r) { return source_row<Block>(block.args, tile.row + r); };
      if constexpr (in_blocks<typename Block::X::Scales>)
        load_blocks(block, tile, steps, row_of_x, stage);
      else
        copy(block, tile, steps, row_of_x, stage);
    }
  }

 private:
  static __forceinline__ void load_blocks(const Block& block, const typename Block::Tile& tile, const Steps& steps,
                                          const auto& row_of_x, typename Block::Stage& stage) {
    BlockScalesByWarp<Block> scales = {block.args};
    scales.begin(tile, steps, row_of_x);
#pragma unroll 1
    for (int k = steps.first; k < steps.end; k += scales.stages) {
      scales.read(k * scales.parts);
#pragma unroll
      for (int i = 0; i < scales.stages; ++i)
        if (k + i < steps.end) {
          barrier_wait(block.empty(stage.index), stage.parity ^ 1);
          scales.write(block, stage.index, i);
          arrive(block, stage);
        }
    }
  }
  // Scales of rows are copied to the last stage of a tile alone.
  static __forceinline__ void copy(const Block& block, const typename Block::Tile& tile, const Steps& steps,
                                   const auto& row_of_x, typename Block::Stage& stage) {
    typename Block::X::Scales::template Loader<Block, 32> x;
    typename Block::W::Scales::template Loader<Block, 32> w;
    x.begin(block, tile, steps, row_of_x);
    w.begin(block, tile, steps, row_of_x);
#pragma unroll 1
    for (int k = steps.first; k < steps.end; ++k) {
      barrier_wait(block.empty(stage.index), stage.parity ^ 1);
      w.copy(block, tile, stage.index, k * Block::block_k);
      x.copy(block, tile, stage.index, k * Block::block_k);
      cp_async_commit();
      cp_async_wait<0>();
      arrive(block, stage);
    }
  }
  static __forceinline__ void arrive(const Block& block, typename Block::Stage& stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(block.full(stage.index));
    stage.advance();
  }
};

}  // namespace moetune
