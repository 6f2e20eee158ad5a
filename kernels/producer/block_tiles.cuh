// The role of tiles: one warp of the producer finds the block's next tile and passes it on through a slot in shared
// memory; all other warps take it from there.
#pragma once
#include "producer/addresses.cuh"
#include "producer/both_ends.cuh"
#include "producer/gather.cuh"
#include "producer/rounds.cuh"

namespace moetune {

// A block's tiles are given by its number.
template <class Block>
struct TilesByNumber {
  using Slot = Block::Slot;
  static __forceinline__ void begin(const auto&...) {}
  static __forceinline__ void take(const auto&...) {}
  // One lane waits before it writes the slot.
  static __forceinline__ void wait_for_slot(const Block& block, const Slot& slot) {
    barrier_wait(block.barrier(Block::layout.tile_empty, slot.index()), slot.parity() ^ 1);
  }
  static __forceinline__ void clear(const auto&...) {}
};

// A block takes the next tile of a counter when it has a free slot; its first tile is given by its number.
template <class Block>
struct TilesFromCounter {
  using Slot = Block::Slot;
  static __forceinline__ void begin(const auto&...) {}
  static __forceinline__ void take(const Block& block, Block::Scheduler::State& scheduler, const Slot& slot) {
    barrier_wait(block.barrier(Block::layout.tile_empty, slot.index()), slot.parity() ^ 1);
    if (slot.taken == 0) return;
    if (threadIdx.x % 32 == 0) scheduler.index = gridDim.x + atomicAdd(block.args.counters + tiles_begun, 1);
    scheduler.index = __shfl_sync(~0u, scheduler.index, 0);
  }
  static __forceinline__ void wait_for_slot(const auto&...) {}
  static __forceinline__ void clear(const auto&...) {}
};

template <class Block>
struct BlockTiles {
  using Tile = Block::Tile;
  using Slot = Block::Slot;
  using Scheduler = Block::Scheduler;
  using Gather = RowGather<Block>;
  using Plain = typename Choice<Block::dynamic, TilesFromCounter<Block>, TilesByNumber<Block>>::type;
  using Sorted = typename Choice<Block::sums_rows, TilesOfMostRowsFirst<Block, Plain>, Plain>::type;
  using Source = typename Choice<Block::mixed, TilesFromBothEnds<Block>, Sorted>::type;

  // Warps that take each tile: those of the consumers, and of the producer the loaders and the one that looks up
  // targets or copies scales.
  static constexpr int takers =
      4 * Block::consumers + (Block::by_rows ? 3 : 1 + Block::scatters + Block::scales_by_warp);

  // One thread calls it before the block's first barrier.
  static __forceinline__ void init_barriers(const Block& block) {
    for (int i = 0; i < Block::tile_slots; ++i) {
      barrier_init(block.barrier(Block::layout.tile_full, i), 1);
      barrier_init(block.barrier(Block::layout.tile_empty, i), takers);
    }
  }
  static __forceinline__ void read_sizes(const Block& block) {
    for (int i = threadIdx.x; i < Block::experts; i += Block::threads) block.m_sizes()[i] = block.args.m_sizes[i];
  }

  // Finds the next tile and passes it on; expert < 0 where there are no more. The finding warp calls it.
  static __forceinline__ Tile find(const Block& block, Slot& slot) {
    typename Scheduler::State scheduler = block.scheduler().value;
    const auto cut = block.cut();
    if (slot.taken == 0) cut.template plan<Scheduler>(scheduler, Scheduler::depth(block.args), Block::dynamic);
    Source::take(block, scheduler, slot);
    Tile tile;
    if (Scheduler::next(scheduler, tile, cut)) {
      ExpertAddresses<Block>::locate(block.args, scheduler, tile);
      Gather::wait_for(block.args, tile, slot.taken == 0);
      KeptXOf<Block>::mark(scheduler, tile);
    } else {
      tile.expert = -1, tile.rows = 0;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      block.scheduler().value = scheduler;
      Source::wait_for_slot(block, slot);
      slot_of(block, slot) = tile;
      barrier_arrive(block.barrier(Block::layout.tile_full, slot.index()));
    }
    __syncwarp();
    ++slot.taken;
    return tile;
  }
  static __forceinline__ void find_all(const Block& block) {
    Slot slot;
    bool more = true;
    while (more) {
      more = find(block, slot).expert >= 0;
      if (slot.taken == 1) block.pdl_wait_for_x();
    }
    finish_finding(block);
  }

  // Takes the next tile. One lane reads the slot and frees it: were all lanes to read it, racecheck would report reads
  // before a __syncwarp as a race. The __syncwarp makes sure that no lane still waits and misses the slot's phase.
  static __forceinline__ Tile take(const Block& block, Slot& slot) {
    barrier_wait(block.barrier(Block::layout.tile_full, slot.index()), slot.parity());
    __syncwarp();
    Tile tile = {};
    if (threadIdx.x % 32 == 0) {
      tile = slot_of(block, slot);
      barrier_arrive(block.barrier(Block::layout.tile_empty, slot.index()));
    }
    ++slot.taken;
    return of_first_lane(tile);
  }

  // The finding warp, and one thread of the loader, call these when there are no more tiles. The one that uses the
  // counters last calls leave().
  static __forceinline__ void finish_finding(const Block& block) {
    if constexpr (Block::dynamic && !Block::gathers_first)
      if (threadIdx.x % 32 == 0) leave(block);
  }
  static __forceinline__ void finish_loading(const Block& block) {
    BlockPace<Block>::finish(block.args);
    if constexpr (Block::together || Block::gathers_first) leave(block);
  }

 private:
  static __forceinline__ Tile& slot_of(const Block& block, const Slot& slot) {
    return block.template at<Tile>(Block::layout.tiles)[slot.index()];
  }

  // The last block to leave clears the counters for the next launch.
  static __forceinline__ void leave(const Block& block) {
    if (atomicAdd(block.args.counters + blocks_done, 1) == gridDim.x - 1) {
      block.args.counters[tiles_begun] = block.args.counters[blocks_done] = 0;
      Source::clear(block.args);
      Gather::clear(block);
    }
  }

  static __forceinline__ Tile of_first_lane(const Tile& tile) {
    int words[sizeof(Tile) / sizeof(int)];
    memcpy(words, &tile, sizeof(Tile));
#pragma unroll
    for (int& word : words) word = __shfl_sync(~0u, word, 0);
    Tile result;
    memcpy(&result, words, sizeof(Tile));
    return result;
  }
};

}  // namespace moetune
