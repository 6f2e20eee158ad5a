// Targets: where the rows of a tile are stored, and with what weight. Each takes two dependent loads, so a warp of the
// producer looks them up while the tile before is multiplied. Where all its warps copy rows, each consumer looks up the
// targets of its tile before it multiplies.
#pragma once
#include "epilogue.cuh"
#include "producer/block_tiles.cuh"

namespace moetune {

// Targets of a tile's rows, from its first on; null where rows aren't scattered.
template <class Block>
struct RowTargets {
  const int* row = nullptr;
  const RowWeight<Block>* weight = nullptr;
};

// Rows are stored in expert order.
template <class Block>
struct NoTargets {
  using Slot = Block::Slot;
  static __forceinline__ void init_barriers(const auto&...) {}
  static __forceinline__ void look_up_all(const auto&...) {}
  static __forceinline__ void prepare(const auto&...) {}
  static __forceinline__ void wait(const auto&...) {}
  static __forceinline__ RowTargets<Block> of(const Block&, int, const Slot&) { return {}; }
};

// The places in shared memory, and the loads.
template <class Block>
struct TargetSlots {
  using Tile = Block::Tile;
  using Slot = Block::Slot;
  using Place = TargetSlot<RowWeight<Block>, Block::block_m>;
  static_assert(sizeof(Place) == Block::layout.target_bytes, "the layout has room for each slot");

  static __forceinline__ Place& place(const Block& block, int slot) {
    return block.template at<Place>(Block::layout.targets)[slot];
  }

  // `threads` threads look up a tile's targets; all loads of a kind come before what depends on them.
  template <int threads>
  static __forceinline__ void look_up(const Block& block, int slot, const Tile& tile) {
    constexpr int count = (Block::block_m + threads - 1) / threads;
    RowWeight<Block> weight[count];
    int target[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads), row = tile.row + min(r, tile.rows - 1);
      target[i] = static_cast<int>(target_row<Block>(block.args, row));
      weight[i] = row_weight<Block>(block.args, row);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads);
      if (r >= tile.rows) break;
      place(block, slot).row[r] = target[i];
      place(block, slot).weight[r] = weight[i];
    }
  }
};

// A warp of the producer looks up targets ahead, into two slots used in turn. Consumers wait for a
// slot's `full`: its targets are there. The warp waits for `empty`: the consumers have stored the tile.
template <class Block>
struct TargetsAhead : TargetSlots<Block> {
  using Slots = TargetSlots<Block>;
  using typename Slots::Tile, typename Slots::Slot;
  static constexpr int slots = target_slots(Block::knobs);

  static __forceinline__ void init_barriers(const Block& block) {
    for (int i = 0; i < slots; ++i) {
      barrier_init(full(block, i), 32);
      barrier_init(empty(block, i), 128 * warpgroups_a_tile(Block::knobs));
    }
  }
  // The role of the warp that looks up targets.
  static __forceinline__ void look_up_all(const Block& block) {
    Slot slot;
    while (true) {
      const Tile tile = BlockTiles<Block>::take(block, slot);
      if (tile.expert < 0) break;
      barrier_wait(empty(block, turn(slot)), parity(slot) ^ 1);
      if (tile.rows > 0) Slots::template look_up<32>(block, turn(slot), tile);
      barrier_arrive(full(block, turn(slot)));  // each lane, for its own writes
    }
  }
  // Consumers, before they multiply a tile: frees the slot of the tile that they stored before. Right behind its stores
  // this would cost the loops over stages their uniform registers.
  static __forceinline__ void prepare(const Block& block, const Tile&, int, const Slot& slot) {
    constexpr int tiles = Block::alternates ? 2 : 1;  // since that tile
    if (slot.taken > tiles) barrier_arrive(empty(block, (slot.taken - 1 - tiles) % slots));
    if constexpr (!Block::alternates) warpgroup_sync();  // or the compiler no longer sees that warps are converged
  }
  static __forceinline__ void wait(const Block& block, const Slot& slot) {
    barrier_wait(full(block, turn(slot)), parity(slot));
  }
  static __forceinline__ RowTargets<Block> of(const Block& block, int, const Slot& slot) {
    return {Slots::place(block, turn(slot)).row, Slots::place(block, turn(slot)).weight};
  }

 private:
  // Of the tile that was taken last.
  static __forceinline__ int turn(const Slot& slot) { return static_cast<int>(slot.taken - 1) % slots; }
  static __forceinline__ unsigned parity(const Slot& slot) { return (slot.taken - 1) / slots % 2; }
  static __forceinline__ unsigned full(const Block& block, int slot) {
    return shared_address(&Slots::place(block, slot).full);
  }
  static __forceinline__ unsigned empty(const Block& block, int slot) {
    return shared_address(&Slots::place(block, slot).empty);
  }
};

// Each consumer looks up the targets of its tile before it multiplies it.
template <class Block>
struct TargetsByConsumer : TargetSlots<Block> {
  using Slots = TargetSlots<Block>;
  using typename Slots::Tile, typename Slots::Slot;

  static __forceinline__ void init_barriers(const auto&...) {}
  static __forceinline__ void look_up_all(const auto&...) {}
  static __forceinline__ void prepare(const Block& block, const Tile& tile, int consumer, const Slot&) {
    warpgroup_sync();
    if (tile.rows > 0) Slots::template look_up<128>(block, consumer, tile);
  }
  static __forceinline__ void wait(const Block&, const Slot&) { warpgroup_sync(); }
  static __forceinline__ RowTargets<Block> of(const Block& block, int consumer, const Slot&) {
    return {Slots::place(block, consumer).row, Slots::place(block, consumer).weight};
  }
};

template <class Block>
using TileTargets = typename Choice<
    !Block::scatters, NoTargets<Block>,
    typename Choice<looks_up_ahead(Block::knobs), TargetsAhead<Block>, TargetsByConsumer<Block>>::type>::type;

}  // namespace moetune
