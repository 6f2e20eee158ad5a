// Mixed experts: one block in `mix` takes tiles of the experts with fewest rows first, the others of those with most,
// until they meet. Experts of few rows are bound by loads of W, those of many by wgmma: so both are busy all the time.
#pragma once
#include "producer/sorted_experts.cuh"

namespace moetune {

template <class Block>
struct TilesFromBothEnds {
  using Scheduler = Block::Scheduler;
  using State = typename Scheduler::State;
  static constexpr int mix = Block::knobs.mix;

  static __forceinline__ bool from_few() { return blockIdx.x % mix == mix - 1; }

  static __forceinline__ void begin(const Block& block) {
    sort_experts(block, from_few());
    if (threadIdx.x == 0) block.scheduler().value.from_few = from_few();
    __syncthreads();
  }

  // Sets the index of the block's next tile, counted from its end; past all tiles where there are no more. The first
  // tile is given by the block's number. All lanes of a warp call it.
  static __forceinline__ void take(const Block& block, State& scheduler, const Block::Slot& slot) {
    if (slot.taken == 0) {
      scheduler.tiles = Scheduler::all_tiles(scheduler);
      if constexpr (Block::sums_rows) scheduler.left_out = Scheduler::left_out(scheduler);
    }
    barrier_wait(block.barrier(Block::layout.tile_empty, slot.index()), slot.parity() ^ 1);
    scheduler.index = next_index(block.args, scheduler, slot.taken == 0);
  }
  static __forceinline__ void wait_for_slot(const auto&...) {}
  static __forceinline__ void clear(const Args& args) {
    args.counters[taken_from_ends] = args.counters[taken_from_ends + 1] = 0;
  }

 private:
  static __forceinline__ int next_index(const Args& args, const State& scheduler, bool first) {
    const int few = gridDim.x / mix, many = gridDim.x - few;  // blocks at each end
    const int own = from_few() ? blockIdx.x / mix : blockIdx.x - blockIdx.x / mix;
    if (first) return own + (from_few() ? many : 0) < scheduler.tiles ? own : scheduler.tiles;
    unsigned long long taken = 0;  // low half: from the end with most rows
    if (threadIdx.x % 32 == 0)
      taken = atomicAdd(reinterpret_cast<unsigned long long*>(args.counters + taken_from_ends),
                        from_few() ? 1ull << 32 : 1ull);
    taken = __shfl_sync(~0u, taken, 0);
    const int from_most = many + static_cast<int>(static_cast<unsigned>(taken));
    const int from_fewest = few + static_cast<int>(taken >> 32);
    if (from_most + from_fewest >= scheduler.tiles) return scheduler.tiles;
    return from_few() ? from_fewest : from_most;
  }
};

}  // namespace moetune
