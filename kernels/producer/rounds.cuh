// Rounds of tiles: blocks that begin each tile together, and X that stays in L2 from one round to the next.
#pragma once
#include "producer/ring.cuh"

namespace moetune {

// Blocks begin their tiles independently.
template <class Block>
struct OwnPace {
  __forceinline__ void begin(const auto&...) {}
  static __forceinline__ void finish(const auto&...) {}
};

// Tiles that need the same rows of W or X find them in L2 while they are about equally far along k. Blocks drift apart
// from tile to tile and then fetch rows from memory twice, which costs power, and with it clock. So all begin a tile
// together. Tiles are taken by number: every block has as many as the others, or one less.
template <class Block>
struct CommonPace {
  unsigned begun = 0;

  // Waits until all blocks have arrived at this tile. One thread of the loader calls it.
  __forceinline__ void begin(const Args& args, const Block::Tile& tile) {
    if (!Block::Cut::all_begin(tile)) return;
    atomicAdd(args.counters + tiles_begun, 1);
    const unsigned all = ++begun * gridDim.x;
    while (load_relaxed(args.counters + tiles_begun) < all) {
    }
  }
  // Counts this block as begun in a last round in which it has no tile.
  static __forceinline__ void finish(const Args& args) {
    atomicAdd(args.counters + tiles_begun, 1);
    __threadfence();
  }
};

template <class Block>
using BlockPace = typename Choice<Block::together, CommonPace<Block>, OwnPace<Block>>::type;

// L2 treats all of X alike.
template <class Block>
struct NoKeptX {
  using Tile = Block::Tile;
  static __forceinline__ void mark(const auto&...) {}
  static __forceinline__ void load(unsigned to, const TensorMap& map, unsigned full, const Tile&, int row, int k) {
    load_box(to, map, full, row, k);
  }
};

// Where a round ends inside an expert, the next round reads that expert's X again, when most of L2 is W. A few of its
// columns are kept; only few, because kept lines stay in L2 until others are kept.
template <class Block>
struct KeptX {
  using Tile = Block::Tile;
  static constexpr int bytes = 8 << 20;

  static __forceinline__ void mark(const Block::Scheduler::State& scheduler, Tile& tile) {
    tile.kept_columns = tile.piece == kWhole ? columns(scheduler) : 0;
  }
  // Only kept columns have a cache policy: requests of neighbouring SMs for the same lines are merged before L2, but
  // not those that name the policy evict_normal.
  static __forceinline__ void load(unsigned to, const TensorMap& map, unsigned full, const Tile& tile, int row, int k) {
    if (k < tile.kept_columns) return load_box(to, map, full, row, k, policy_to_keep());
    load_box(to, map, full, row, k);
  }

 private:
  static __forceinline__ int columns(const Block::Scheduler::State& scheduler) {
    const int round = Block::Scheduler::round(), last = scheduler.end_tile - 1, tile = scheduler.index - round;
    return last / round > tile / round ? bytes / 2 / scheduler.expert_m : 0;
  }
};

template <class Block>
using KeptXOf = typename Choice<keeps_x(Block::knobs), KeptX<Block>, NoKeptX<Block>>::type;

}  // namespace moetune
