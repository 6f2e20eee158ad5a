// Where the matrices of a tile's expert begin: at an offset from one base, or at its own pointers (as in GroupGEMM),
// to which each block sets two tensor maps.
#pragma once
#include "producer/ring.cuh"

namespace moetune {

// Experts are offsets from one base, and one tensor map serves a whole operand.
template <class Block>
struct BaseAddresses {
  using Tile = Block::Tile;

  static __forceinline__ void setup(const auto&...) {}
  static __forceinline__ void prefetch(const Args& args) {
    if constexpr (!Block::w_by_rows && !Block::w_in_registers) prefetch_map(args.w_map);
    if constexpr (!Block::x_by_rows) prefetch_map(args.x_map);
  }
  static __forceinline__ void locate(const auto&...) {}
  __forceinline__ void follow(const auto&...) {}
  __forceinline__ const TensorMap& x_map(const Args& args) const { return args.x_map; }
  __forceinline__ const TensorMap& w_map(const Args& args) const { return args.w_map; }

  // The tile's first row of X, counted from x(), and of W in its tensor map.
  static __forceinline__ int x_row(const Tile& tile) { return tile.row; }
  static __forceinline__ int w_row(const Args& args, const Tile& tile) {
    return tile.expert * static_cast<int>(args.n) + tile.column;
  }
  // The expert's W in a map of many matrices.
  static __forceinline__ int w_matrix(const Tile& tile) { return tile.expert; }
  static __forceinline__ const char* x(const Args& args, const Tile&) { return static_cast<const char*>(args.x); }
  // The expert's W.
  static __forceinline__ const char* w(const Args& args, const Tile& tile) {
    if constexpr (Block::w_in_registers)
      return static_cast<const char*>(args.w) +
             tile.expert * reordered_down(args.n) * reordered_across(args.k) * Block::problem.w_block_bytes;
    return static_cast<const char*>(args.w) + bytes_of(tile.expert * args.n * args.k, Block::problem.w_memory_bits);
  }
  // Row `row` of the tile in Y, where rows aren't scattered.
  static __forceinline__ Block::Result* y(const Args& args, const Tile& tile, int row) {
    const long long target = tile.row + row;
    return static_cast<typename Block::Result*>(args.y) + target * y_columns<Block>(args);
  }
};

// Each expert has its own pointers; the loading warp rewrites two tensor maps when the expert changes.
template <class Block>
struct PointerAddresses {
  using Tile = Block::Tile;

  static constexpr int turns = map_turns(Block::knobs);
  int expert = -1, turn = 0;
  const TensorMap *x_now = nullptr, *w_now = nullptr;

  // Rows of X are counted from the expert's first; gathered rows belong to all experts.
  static constexpr bool own_rows = !Block::problem.permutes_x();

  // Copies the maps of whole matrices to shared memory, to be rewritten there. All threads call it.
  static __forceinline__ void setup(const Block& block) {
    constexpr int words = sizeof(TensorMap) / sizeof(uint4);
    if (threadIdx.x < words) {
      auto* maps = block.template at<uint4>(Block::layout.maps);
      maps[threadIdx.x] = reinterpret_cast<const uint4*>(&block.args.x_map)[threadIdx.x];
      maps[words + threadIdx.x] = reinterpret_cast<const uint4*>(&block.args.w_map)[threadIdx.x];
    }
  }
  static __forceinline__ void prefetch(const auto&...) {}

  // The finding warp reads the expert's pointers, except of rows that belong to all experts.
  static __forceinline__ void locate(const Args& args, const Block::Scheduler::State& scheduler, Tile& tile) {
    tile.first = tile.row - scheduler.expert_row;
    tile.w = args.w_of[tile.expert];
    if constexpr (own_rows) tile.x = args.x_of[tile.expert];
    if constexpr (!Block::scatters) tile.y = args.y_of[tile.expert];
  }

  // Sets the maps to the tile's expert; rows of X then end where the expert ends. The warp that issues copies
  // calls it once a tile.
  __forceinline__ void follow(const Block& block, const Tile& tile) {
    if (tile.expert == expert) return;
    expert = tile.expert;
    turn = turn == turns - 1 ? 0 : turn + 1;
    TensorMap* to = block.args.maps + (static_cast<long long>(blockIdx.x) * turns + turn) * 2;
    x_now = to;
    w_now = to + 1;
    auto* maps = block.template at<TensorMap>(Block::layout.maps);
    if constexpr (!Block::x_by_rows) {
      const unsigned map = shared_address(maps);
      if (threadIdx.x % 32 == 0) {
        replace_address(map, tile.x);
        replace_rows(map, block.m_sizes()[expert]);
      }
      __syncwarp();
      publish_map(to, map);
      acquire_map(to);
    }
    if constexpr (!Block::w_by_rows) {
      const unsigned map = shared_address(maps + 1);
      if (threadIdx.x % 32 == 0) replace_address(map, tile.w);
      __syncwarp();
      publish_map(to + 1, map);
      acquire_map(to + 1);
    }
  }
  __forceinline__ const TensorMap& x_map(const Args&) const { return *x_now; }
  __forceinline__ const TensorMap& w_map(const Args&) const { return *w_now; }

  static __forceinline__ int x_row(const Tile& tile) { return own_rows ? tile.first : tile.row; }
  static __forceinline__ int w_row(const Args&, const Tile& tile) { return tile.column; }
  static __forceinline__ int w_matrix(const Tile&) { return 0; }
  static __forceinline__ const char* x(const Args& args, const Tile& tile) {
    return static_cast<const char*>(own_rows ? tile.x : args.x);
  }
  static __forceinline__ const char* w(const Args&, const Tile& tile) { return static_cast<const char*>(tile.w); }
  static __forceinline__ Block::Result* y(const Args& args, const Tile& tile, int row) {
    return static_cast<typename Block::Result*>(tile.y) + (tile.first + row) * y_columns<Block>(args);
  }
};

template <class Block>
using ExpertAddresses = typename Choice<Block::pointers, PointerAddresses<Block>, BaseAddresses<Block>>::type;

}  // namespace moetune
