// Which expert and tile comes next. A persistent block takes tiles blockIdx, blockIdx + gridDim, ... or those whose
// index it is given. The host reads no m_sizes. How tiles are cut along k is a policy: WholeTiles, TilePieces or
// SharedLastRound.
#pragma once
#include "args.h"
#include "tiles.h"

namespace moetune {

// A value in shared memory, aligned so that it is copied in few instructions.
template <class T>
struct alignas(32) Aligned {
  T value;
};

// Steps along k of a tile or of a part of one: [first, end).
struct Steps {
  int first, end;
};

// The policy that cuts no tile. A policy says which tile belongs to an index, which of its steps the block multiplies,
// and what the block's next index is. LastRound lies in shared memory; only SharedLastRound uses it.
struct WholeTiles {
  __forceinline__ explicit WholeTiles(LastRound*) {}
  // Decides which tiles are cut; a whole warp calls it before its first tile.
  template <class Scheduler>
  __forceinline__ void plan(typename Scheduler::State&, int, bool) const {}
  template <class State>
  __forceinline__ int tile_at(const State& s, Tile& tile) const {
    tile.piece = kWhole;
    return s.index;
  }
  template <class State>
  __forceinline__ void advance(State& s, Tile&, int round) const {
    s.index += round;
  }
  static __forceinline__ Steps steps_of(const Tile&, int depth) { return {0, depth}; }
  // Whether all blocks begin a tile at the same time as this one.
  static __forceinline__ bool all_begin(const Tile&) { return true; }
};

// Position of tile `index` among fast x slow tiles: groups of `group` slow indices are walked together, the slow index
// fastest inside a group, so that a group's operands stay in L2 (as in Triton's matmul tutorial). group 1 is row by
// row.
template <int group>
__forceinline__ void grouped_order(int index, int fast_tiles, int slow_tiles, int& fast, int& slow) {
  if constexpr (group == 1) {
    slow = index / fast_tiles;
    fast = index - slow * fast_tiles;
  } else {
    const int first = index / (group * fast_tiles) * group;
    const int size = min(group, slow_tiles - first);
    const int inside = index - first * fast_tiles;
    fast = inside / size;
    slow = first + inside - fast * size;
  }
}

// The same for an expert's m_tiles x n_tiles tiles, by the knobs raster and group.
template <class Config>
__forceinline__ void place_in_expert(int index, int m_tiles, int n_tiles, int& m_tile, int& n_tile) {
  if constexpr (Config::knobs.raster == Raster::n)
    grouped_order<Config::knobs.group>(index, n_tiles, m_tiles, n_tile, m_tile);
  else
    grouped_order<Config::knobs.group>(index, m_tiles, n_tiles, m_tile, n_tile);
}

// A warp finds the expert of a tile with a scan over 32 experts at a time, so that many experts, and empty ones, cost
// little. Every lane has the same state. The cluster_m x cluster_n blocks of a cluster take neighbouring tiles; one may
// then have no rows. With row_step > 0 the rows of an expert are divided evenly over its tiles, in multiples of
// row_step.
template <class Config, class Cut, class Order = ExpertsInOrder, int cluster_m = 1, int cluster_n = 1, int row_step = 0>
struct Scheduler {
  using State = Walk<Order>;
  static constexpr int block_m = Config::knobs.block_m, block_n = Config::knobs.block_n;
  static constexpr int block_k = Config::knobs.block_k;
  static constexpr int cluster = cluster_m * cluster_n;

  static __forceinline__ State begin(const Args& args) {
    return State(args.m_sizes, args.experts,
                 static_cast<int>((args.n + block_n * cluster_n - 1) / (block_n * cluster_n)), blockIdx.x / cluster);
  }

  // Finds the tile at `index` and advances to the block's next. False when there are no more. Between calls `index` may
  // be raised. All lanes of a warp must call it together.
  template <class TileType>
  static __forceinline__ bool next(State& s, TileType& tile, const Cut& cut) {
    const int at = cut.tile_at(s, tile);
    if (at >= s.end_tile && !find_expert(s, at)) return false;
    const int m_tiles = m_tiles_of(s.expert_m);
    int m_tile, n_tile;
    const int inside = s.tile_in_expert(at, s.first_tile, s.end_tile);
    place_in_expert<Config>(inside, m_tiles, s.n_tiles, m_tile, n_tile);
    tile.expert = s.expert;
    int height = block_m;
    if constexpr (row_step > 0) {
      const int tiles = m_tiles * cluster_m;
      height = ((s.expert_m + tiles - 1) / tiles + row_step - 1) / row_step * row_step;
    }
    const int rank = cluster == 1 ? 0 : blockIdx.x % cluster;
    const int first = (m_tile * cluster_m + (cluster_m > 1 ? rank : 0)) * height;
    tile.row = s.expert_row + first;
    tile.rows = max(0, min(height, s.expert_m - first));
    tile.column = (n_tile * cluster_n + (cluster_n > 1 ? rank : 0)) * block_n;
    cut.advance(s, tile, round());
    return true;
  }

  // Tiles that all blocks take in one round, one each.
  static __forceinline__ int round() { return static_cast<int>(gridDim.x) / cluster; }

  // Steps along k of a whole tile.
  static __forceinline__ int depth(const Args& args) { return static_cast<int>((args.k + block_k - 1) / block_k); }

  static __forceinline__ int depth_of(const Args& args, const auto&) { return depth(args); }

  // Rows of all experts, once next() has returned false.
  static __forceinline__ int all_rows(const State& s) { return s.window_rows; }

  // All lanes of a warp call it.
  static __forceinline__ int all_tiles(const State& s) {
    int tiles = 0;
    for (int e = static_cast<int>(threadIdx.x % 32); e < s.experts; e += 32) tiles += m_tiles_of(s.m_sizes[e]);
    return __reduce_add_sync(~0u, tiles) * s.n_tiles;
  }

 private:
  static __forceinline__ int m_tiles_of(int m) { return (m + block_m * cluster_m - 1) / (block_m * cluster_m); }

  static __forceinline__ bool find_expert(State& s, int at) {
    const int lane = threadIdx.x % 32;
    for (; s.window < s.experts; s.window += 32) {
      const int m = s.window + lane < s.experts ? s.m_sizes[s.window + lane] : 0;
      const int tiles = m_tiles_of(m) * s.n_tiles;
      int tile_sum = tiles, row_sum = m;
      for (int step = 1; step < 32; step *= 2) {
        const int more_tiles = __shfl_up_sync(~0u, tile_sum, step);
        const int more_rows = __shfl_up_sync(~0u, row_sum, step);
        if (lane >= step) tile_sum += more_tiles, row_sum += more_rows;
      }
      const unsigned past = __ballot_sync(~0u, at < s.window_tiles + tile_sum);
      if (past != 0) {
        const int found = __ffs(past) - 1;
        s.expert = s.window + found;
        s.expert_m = __shfl_sync(~0u, m, found);
        s.expert_row = s.window_rows + __shfl_sync(~0u, row_sum - m, found);
        s.end_tile = s.window_tiles + __shfl_sync(~0u, tile_sum, found);
        s.first_tile = s.window_tiles + __shfl_sync(~0u, tile_sum - tiles, found);
        s.find(s.expert, s.expert_row);
        return true;
      }
      s.window_tiles += __shfl_sync(~0u, tile_sum, 31);
      s.window_rows += __shfl_sync(~0u, row_sum, 31);
    }
    return false;
  }
};

// The same where experts have equal grids of tiles and sum over their rows. Kernels that add to Y leave out experts
// without rows.
template <class Config, class Cut, class Order, int cluster_m = 1, int cluster_n = 1>
struct GridScheduler {
  using State = GridWalk<Order>;
  static constexpr int block_m = Config::knobs.block_m, block_n = Config::knobs.block_n;
  static constexpr int block_k = Config::knobs.block_k;
  static constexpr int cluster = cluster_m * cluster_n;

  static __forceinline__ State begin(const Args& args) {
    const int m = static_cast<int>(args.m), n = static_cast<int>(args.n);
    State s = {};
    s.m_sizes = args.m_sizes, s.experts = args.experts;
    s.m = m;
    s.m_tiles = (m + block_m * cluster_m - 1) / (block_m * cluster_m);
    s.n_tiles = (n + block_n * cluster_n - 1) / (block_n * cluster_n);
    s.index = static_cast<int>(blockIdx.x) / cluster;
    return s;
  }
  template <class TileType>
  static __forceinline__ bool next(State& s, TileType& tile, const Cut& cut) {
    const int at = cut.tile_at(s, tile), grid = s.m_tiles * s.n_tiles, place = at / grid;
    FoundExpert found = {};
    const bool any = s.find(place, Config::problem.accumulates, found);
    tile.first_row = found.row, tile.depth = found.rows;
    if (!any) return false;
    int m_tile, n_tile;
    place_in_expert<Config>(s.tile_in_expert(at - place * grid, grid), s.m_tiles, s.n_tiles, m_tile, n_tile);
    tile.expert = found.expert;
    const int rank = cluster == 1 ? 0 : blockIdx.x % cluster;
    const int first = (m_tile * cluster_m + (cluster_m > 1 ? rank : 0)) * block_m;
    tile.row = tile.expert * s.m + first;
    tile.rows = max(0, min(block_m, s.m - first));
    tile.column = (n_tile * cluster_n + (cluster_n > 1 ? rank : 0)) * block_n;
    cut.advance(s, tile, round());
    return true;
  }
  static __forceinline__ int round() { return static_cast<int>(gridDim.x) / cluster; }
  // Number of experts that are left out. All lanes of a warp call it.
  static __forceinline__ int left_out(const State& s) {
    int without = 0;
    if constexpr (Config::problem.accumulates)
      for (int e = static_cast<int>(threadIdx.x % 32); e < s.experts; e += 32) without += s.m_sizes[e] == 0;
    return __reduce_add_sync(~0u, without);
  }
  static __forceinline__ int all_tiles(const State& s) { return (s.experts - left_out(s)) * s.m_tiles * s.n_tiles; }
  static __forceinline__ int all_rows(const State& s) {
    int rows = 0;
    for (int e = 0; e < s.experts; ++e) rows += s.m_sizes[e];
    return rows;
  }
  // A bound for the steps along k of any tile, and the steps of one. Without rows there are steps too, over zeros: they
  // set the sums.
  static __forceinline__ int depth(const Args&) { return 0x7fffffff; }
  static __forceinline__ int depth_of(const Args&, const auto& tile) {
    return max(Config::knobs.split, (tile.depth + block_k - 1) / block_k);
  }
};

}  // namespace moetune
