// The wgmma variant's notes: where the rows of a tile are stored and with what weight. Each is two loads, one after the
// other, so a warp that has nothing else to do notes a tile while others multiply it; where all warps of the producer copy
// rows, a consumer notes its own before it begins.
#pragma once
#include "epilogue.cuh"
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaNotes : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::block_m, Shape::consumers, Shape::pingpong, Shape::scatters, Shape::notes_ahead, Shape::note_turns, Shape::at, Shape::warpgroup_sync;
  using Element = typename Shape::Element;
  using Notes = typename Shape::Notes;
  using Shared = typename Shape::Shared;
  using Slot = typename Shape::Slot;
  using Tile = typename Shape::Tile;

  static __device__ __forceinline__ void init(Shared& shared) {
    if constexpr (notes_ahead)
      for (int i = 0; i < note_turns; ++i) {
        barrier_init(at(&shared.noted[i].full, 0), 32);
        barrier_init(at(&shared.noted[i].empty, 0), 128 * (pingpong ? 1 : consumers));
      }
  }

  // Of the tile that `slot` gave last: in turns, or, noted by the consumers, one for each.
  static __device__ __forceinline__ int turn_of(const Slot& slot) { return static_cast<int>(slot.count - 1) % note_turns; }
  static __device__ __forceinline__ unsigned parity_of(const Slot& slot) { return (slot.count - 1) / note_turns % 2; }
  // What is noted of its rows, from its first on; nothing where rows don't scatter.
  struct Rows {
    const int* target = nullptr;
    const Element* weight = nullptr;
  };
  static __device__ __forceinline__ Rows rows_of(const Shared& shared, int consumer, const Slot& slot) {
    if constexpr (scatters) {
      const Notes& noted = shared.noted[notes_ahead ? turn_of(slot) : consumer];
      return {noted.target, noted.weight};
    }
    return {};
  }

  // By `threads` threads; all loads of a kind before what depends on them.
  template <int threads>
  static __device__ __forceinline__ void note(const Args& args, Notes& notes, const Tile& tile) {
    constexpr int share = (block_m + threads - 1) / threads;
    Element weight[share];
    int target[share];
#pragma unroll
    for (int i = 0; i < share; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads), row = tile.row + min(r, tile.rows - 1);
      target[i] = static_cast<int>(target_row<Config>(args, row));
      weight[i] = row_weight<Config>(args, row);
    }
#pragma unroll
    for (int i = 0; i < share; ++i) {
      const int r = i * threads + static_cast<int>(threadIdx.x % threads);
      if (r >= tile.rows) break;
      notes.target[r] = target[i];
      notes.weight[r] = weight[i];
    }
  }
  // A warp notes the tile that `slot` gave last.
  static __device__ __forceinline__ void note_ahead(const Args& args, Shared& shared, const Tile& tile, const Slot& slot) {
    Notes& notes = shared.noted[turn_of(slot)];
    barrier_wait(at(&notes.empty, 0), parity_of(slot) ^ 1);
    if (tile.rows > 0) note<32>(args, notes, tile);
    barrier_arrive(at(&notes.full, 0));  // each lane, for its own
  }

  // Consumers: before they multiply a tile (what they had before is stored: arriving right behind its stores would cost all
  // loops over stages the uniform registers, 60 to 92 instructions),
  static __device__ __forceinline__ void begin(const Args& args, Shared& shared, const Tile& tile, int consumer, const Slot& slot) {
    if constexpr (notes_ahead) {
      constexpr int tiles = pingpong ? 2 : 1;  // since then
      if (slot.count > tiles) barrier_arrive(at(&shared.noted[(slot.count - 1 - tiles) % note_turns].empty, 0));
      if constexpr (!pingpong) warpgroup_sync();  // or the compiler doesn't take the warps for together any more
    } else if constexpr (scatters) {
      warpgroup_sync();
      if (tile.rows > 0) note<128>(args, shared.noted[consumer], tile);
    }
  }
  // and before they store it.
  static __device__ __forceinline__ void wait(const Shared& shared, const Slot& slot) {
    if constexpr (notes_ahead)
      barrier_wait(at(&shared.noted[turn_of(slot)].full, 0), parity_of(slot));
    else if constexpr (scatters)
      warpgroup_sync();
  }
};

}  // namespace moetune
