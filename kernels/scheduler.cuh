// Which expert and tile comes next. Persistent blocks take tiles blockIdx, blockIdx + gridDim, ...; nothing is read on
// the host.
#pragma once
#include "args.h"

namespace moetune {

// One tile of Y. Rows are those of expert order.
struct Tile {
  int expert;
  int row;   // first row
  int rows;  // valid ones, at most block_m
  int n;     // first column
};

// Position of tile `index` among fast x slow tiles: groups of `group` slow indices are walked together, the slow index
// fastest inside a group, so that a group's operands stay in L2 (as in Triton's matmul tutorial). group 1 is row by row.
template <int group>
__device__ __forceinline__ void grouped_order(int index, int fast_tiles, int slow_tiles, int& fast, int& slow) {
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

// A warp finds the expert of a tile with a scan over 32 experts at a time: the cost is that of a few shuffles for 8 and
// for 512 experts, and empty experts are free. Every lane holds the same state.
template <class Config>
struct Scheduler {
  const int* m_sizes;
  int experts;
  int n_tiles;
  int index;         // of the next tile, over all experts
  int window;        // first expert of the 32 that are scanned
  int window_tiles;  // tiles before the window
  int window_rows;   // rows before the window
  int expert, expert_m, expert_row, first_tile, end_tile;  // of the expert found last

  Scheduler() = default;
  __device__ __forceinline__ explicit Scheduler(const Args& args)
      : m_sizes(args.m_sizes), experts(args.experts),
        n_tiles(static_cast<int>((args.n + Config::block_n - 1) / Config::block_n)), index(blockIdx.x), window(0),
        window_tiles(0), window_rows(0), expert(0), expert_m(0), expert_row(0), first_tile(0), end_tile(0) {}

  // False when there are no more tiles. All lanes of a warp must call it together.
  __device__ __forceinline__ bool next(Tile& tile) {
    if (index >= end_tile && !find_expert()) return false;
    const int m_tiles = (expert_m + Config::block_m - 1) / Config::block_m;
    int m_tile, n_tile;
    if constexpr (Config::raster == 0)
      grouped_order<Config::group>(index - first_tile, n_tiles, m_tiles, n_tile, m_tile);
    else
      grouped_order<Config::group>(index - first_tile, m_tiles, n_tiles, m_tile, n_tile);
    tile.expert = expert;
    tile.row = expert_row + m_tile * Config::block_m;
    tile.rows = min(Config::block_m, expert_m - m_tile * Config::block_m);
    tile.n = n_tile * Config::block_n;
    index += gridDim.x;
    return true;
  }

 private:
  __device__ __forceinline__ bool find_expert() {
    const int lane = threadIdx.x % 32;
    for (; window < experts; window += 32) {
      const int m = window + lane < experts ? m_sizes[window + lane] : 0;
      const int tiles = (m + Config::block_m - 1) / Config::block_m * n_tiles;
      int tile_sum = tiles, row_sum = m;
      for (int step = 1; step < 32; step *= 2) {
        const int more_tiles = __shfl_up_sync(~0u, tile_sum, step);
        const int more_rows = __shfl_up_sync(~0u, row_sum, step);
        if (lane >= step) tile_sum += more_tiles, row_sum += more_rows;
      }
      const unsigned past = __ballot_sync(~0u, index < window_tiles + tile_sum);
      if (past != 0) {
        const int found = __ffs(past) - 1;
        expert = window + found;
        expert_m = __shfl_sync(~0u, m, found);
        expert_row = window_rows + __shfl_sync(~0u, row_sum - m, found);
        end_tile = window_tiles + __shfl_sync(~0u, tile_sum, found);
        first_tile = window_tiles + __shfl_sync(~0u, tile_sum - tiles, found);
        return true;
      }
      window_tiles += __shfl_sync(~0u, tile_sum, 31);
      window_rows += __shfl_sync(~0u, row_sum, 31);
    }
    return false;
  }
};

}  // namespace moetune
