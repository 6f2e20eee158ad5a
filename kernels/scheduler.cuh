// Which expert and tile comes next. Persistent blocks take tiles blockIdx, blockIdx + gridDim, ...; nothing is read on
// the host.
#pragma once
#include "args.h"

namespace moetune {

// One tile of Y. Rows are those of expert order.
struct Tile {
  int expert;
  int row;   // first row
  int rows;  // valid ones, at most block_m; 0 only where a block of a cluster has none
  int n;     // first column
  int piece;  // of the tiles that are cut along k, all counted through; -1: the tile is whole
};

// A tile of which several blocks may multiply a part each.
struct SharedOut : Tile {
  // `piece` is -2 - a number for a tile's beginning, of whose missing parts that is the first; twice its number for a part,
  // one more where the next part belongs to it too.
  int first_step, end_step;  // along k
  int begins;                // whether all blocks begin one now
};

template <bool condition, class T, class Otherwise>
struct Choice {
  using type = T;
};
template <class T, class Otherwise>
struct Choice<false, T, Otherwise> {
  using type = Otherwise;
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

// In which order a block goes through the experts: in that of their rows in memory;
struct InOrder {};
// or by how many rows they have, one block in so many from the fewest up and the others from the most down, until they meet.
// Experts of few rows wait for W, those of many for the multipliers: both are kept busy then.
struct FromEnds {
  const int* expert_of;  // in the block's order, whose rows m_sizes tells
  const int* row_of;     // where each one's rows begin
  int tiles;             // of all experts
  bool from_few;
};
// How all blocks share the last tiles, fewer than they are: one begins each, the others make its missing parts.
struct LastRound {
  int tiles;
  int steps, own, parts;  // of a tile, how far it is begun, and parts that are left of it
};

// A warp finds the expert of a tile with a scan over 32 experts at a time: the cost is that of a few shuffles for 8 and
// for 512 experts, and empty experts are free. Every lane holds the same state. The blocks of a cluster, cluster_m x
// cluster_n of them, walk together over neighbouring tiles; one may then have no rows. With row_step > 0 the rows of an
// expert are shared out evenly over its tiles, in steps of that many. With split > 1 the last tiles are cut along k into
// that many pieces, so that blocks finish at about the same time: those that exceed whole rounds of the blocks, and half a
// round more where blocks take tiles as they have time; all where there are under two rounds, none with fewer steps than
// pieces. With split 0 the last, incomplete round is shared out: each of its tiles is begun by a block, and blocks that
// would be idle take what is missing at the same place of all of them, so that tiles that need the same rows still pass
// the same part of k at the same time.
template <class Config, int cluster_m = 1, int cluster_n = 1, int row_step = 0, int split = 1, bool from_ends = false>
struct Scheduler : Choice<from_ends, FromEnds, InOrder>::type {
  static constexpr int cluster = cluster_m * cluster_n;
  const int* m_sizes;
  int experts;
  int n_tiles;
  int index;         // of the next tile, or piece, over all experts
  int whole;         // tiles that are not cut
  int window;        // first expert of the 32 that are scanned
  int window_tiles;  // tiles before the window
  int window_rows;   // rows before the window
  int expert, expert_m, expert_row, first_tile, end_tile;  // of the expert found last

  Scheduler() = default;
  __device__ __forceinline__ explicit Scheduler(const Args& args)
      : m_sizes(args.m_sizes), experts(args.experts),
        n_tiles(static_cast<int>((args.n + Config::block_n * cluster_n - 1) / (Config::block_n * cluster_n))), index(blockIdx.x / cluster), whole(0), window(0),
        window_tiles(0), window_rows(0), expert(0), expert_m(0), expert_row(0), first_tile(0), end_tile(0) {}

  // The tile at `index`; then goes on to the block's next. False when there are no more. `index` may be set in between,
  // upwards. All lanes of a warp must call it together.
  template <class Tile>
  __device__ __forceinline__ bool next(Tile& tile, const LastRound* last_round = nullptr) {
    int at = index;  // as a tile
    tile.piece = -1;
    if constexpr (split == 0) at = tile_of(index, *last_round);
    if constexpr (split > 1)
      if (index >= whole) {
        tile.piece = index - whole;
        at = whole + tile.piece / split;
      }
    if (at >= end_tile && !find_expert(at)) return false;
    const int m_tiles = tiles_of(expert_m);
    int m_tile, n_tile, inside = at - first_tile;
    if constexpr (from_ends)
      if (this->from_few) inside = end_tile - 1 - at;
    if constexpr (Config::raster == 0)
      grouped_order<Config::group>(inside, n_tiles, m_tiles, n_tile, m_tile);
    else
      grouped_order<Config::group>(inside, m_tiles, n_tiles, m_tile, n_tile);
    tile.expert = expert;
    int height = Config::block_m;
    if constexpr (row_step > 0) {
      const int shares = m_tiles * cluster_m;
      height = ((expert_m + shares - 1) / shares + row_step - 1) / row_step * row_step;
    }
    const int rank = cluster == 1 ? 0 : blockIdx.x % cluster;
    const int first = (m_tile * cluster_m + (cluster_m > 1 ? rank : 0)) * height;
    tile.row = expert_row + first;
    tile.rows = max(0, min(height, expert_m - first));
    tile.n = (n_tile * cluster_n + (cluster_n > 1 ? rank : 0)) * Config::block_n;
    if constexpr (split == 0)
      share(tile, *last_round);
    else
      index += round();
    return true;
  }

  // Tiles that all blocks take together, one each.
  static __device__ __forceinline__ int round() { return static_cast<int>(gridDim.x) / cluster; }

  // Steps along k of a tile.
  static __device__ __forceinline__ int depth(const Args& args) {
    return static_cast<int>((args.k + Config::block_k - 1) / Config::block_k);
  }

  // For all lanes of a warp.
  __device__ __forceinline__ int all_tiles() const {
    int tiles = 0;
    for (int e = static_cast<int>(threadIdx.x % 32); e < experts; e += 32) tiles += tiles_of(m_sizes[e]);
    return __reduce_add_sync(~0u, tiles) * n_tiles;
  }

  // Decides which tiles of `depth` steps are cut; a warp calls it before its first tile. Blocks are `dynamic` that take
  // tiles as they have time. With split 0, how the last are shared out.
  __device__ __forceinline__ void cut(int depth, bool dynamic, LastRound* last_round = nullptr) {
    const int tiles = all_tiles();
    if constexpr (split == 0) {
      const LastRound last = share_out(tiles, depth);
      whole = tiles - last.tiles;
      if (threadIdx.x % 32 == 0) *last_round = last;
      __syncwarp();
    } else {
      const int more = dynamic ? (round() + 1) / 2 : 0;
      whole = depth < split ? tiles : tiles < 2 * round() ? 0 : tiles - tiles % round() - more;
    }
  }

 private:
  // Parts of fewer steps along k aren't worth their sums' way through memory, which takes as long as some steps, nor are more
  // for a tile than two.
  static constexpr int least = 512 / Config::block_k, toll = 192 / Config::block_k, most_parts = 2;

  // Blocks that begin no tile of the last round take `turns` parts each, or several of them the parts of one tile: all are
  // done at about the same time.
  __device__ __forceinline__ LastRound share_out(int tiles, int depth) const {
    const int tail = tiles % round(), others = round() - tail;
    const LastRound none = {0, depth, depth, 0};
    if (tail == 0) return none;
    const int parts = min(most_parts, max(1, others / tail)), turns = (tail + others - 1) / others;
    const int part = (depth - (turns - 1) * toll) / (turns + parts);
    return part < least ? none : LastRound{tail, depth, depth - parts * part, parts};
  }
  static constexpr int beyond_all = 0x7fffffff;
  // Which part of a tile stands at `index`; below zero for whole tiles and beginnings.
  __device__ __forceinline__ int part_at(int index, const LastRound& last) const { return index - whole - last.tiles; }
  // The tile at `index`: a whole one, the beginning of one, or a part of one.
  __device__ __forceinline__ int tile_of(int index, const LastRound& last) const {
    const int part = part_at(index, last);
    if (part < 0) return index;
    return part < last.parts * last.tiles ? whole + part % last.tiles : beyond_all;
  }
  // What of it the block multiplies; goes on to the next.
  template <class Tile>
  __device__ __forceinline__ void share(Tile& tile, const LastRound& last) {
    tile.first_step = 0, tile.end_step = last.steps, tile.begins = index - whole < round();
    const int part = part_at(index, last);
    if (index < whole) {
      index += round();
    } else if (part < 0) {
      tile.end_step = last.own, tile.piece = -2 - (index - whole) * last.parts;
      index = beyond_all;
    } else {
      const int number = part / last.tiles, rest = last.steps - last.own;
      tile.first_step = last.own + number * rest / last.parts;
      tile.end_step = last.own + (number + 1) * rest / last.parts;
      tile.piece = 2 * (part % last.tiles * last.parts + number) + (number == 0 && last.parts > 1);
      index += round() - last.tiles;
    }
  }

  static __device__ __forceinline__ int tiles_of(int m) { return (m + Config::block_m * cluster_m - 1) / (Config::block_m * cluster_m); }

  __device__ __forceinline__ bool find_expert(int at) {
    const int lane = threadIdx.x % 32;
    for (; window < experts; window += 32) {
      const int m = window + lane < experts ? m_sizes[window + lane] : 0;
      const int tiles = tiles_of(m) * n_tiles;
      int tile_sum = tiles, row_sum = m;
      for (int step = 1; step < 32; step *= 2) {
        const int more_tiles = __shfl_up_sync(~0u, tile_sum, step);
        const int more_rows = __shfl_up_sync(~0u, row_sum, step);
        if (lane >= step) tile_sum += more_tiles, row_sum += more_rows;
      }
      const unsigned past = __ballot_sync(~0u, at < window_tiles + tile_sum);
      if (past != 0) {
        const int found = __ffs(past) - 1;
        expert = window + found;
        expert_m = __shfl_sync(~0u, m, found);
        expert_row = window_rows + __shfl_sync(~0u, row_sum - m, found);
        end_tile = window_tiles + __shfl_sync(~0u, tile_sum, found);
        first_tile = window_tiles + __shfl_sync(~0u, tile_sum - tiles, found);
        if constexpr (from_ends) {
          expert_row = this->row_of[expert];
          expert = this->expert_of[expert];
        }
        return true;
      }
      window_tiles += __shfl_sync(~0u, tile_sum, 31);
      window_rows += __shfl_sync(~0u, row_sum, 31);
    }
    return false;
  }
};

}  // namespace moetune
