// Positions in the rings of stages and of tile slots, and the barriers of warpgroups.
#pragma once
#include "epilogue.cuh"
#include "producer/producer_plan.h"
#include "scheduler.cuh"
#include "tma_ptx.cuh"

namespace moetune {

// A position in the ring of stages: which one, and the parity of its phase.
template <int count>
struct RingPosition {
  int index = 0;
  unsigned parity = 0;
  __forceinline__ void advance(int steps = 1) {
    index += steps;
    if (steps == 1) {
      if (index == count) index = 0, parity ^= 1;
    } else {
      const int rounds = index / count;
      index -= rounds * count;
      parity ^= rounds & 1;
    }
  }
};

// The same for the slots of tiles: one number, because registers are few.
template <int count>
struct SlotPosition {
  static_assert((count & (count - 1)) == 0, "the number of tile slots is a power of two");
  unsigned taken = 0;  // tiles so far
  __forceinline__ int index() const { return taken % count; }
  __forceinline__ unsigned parity() const { return taken / count % 2; }
};

// Named barriers: from kTurnBarrier one for each consumer's turn with ping-pong, from kWarpgroupBarrier one for each
// warpgroup, from kTileBarrier one for each set of warpgroups that share tiles.
constexpr int kTurnBarrier = 2, kWarpgroupBarrier = 8, kTileBarrier = 13;

__forceinline__ void warpgroup_sync() { named_sync(kWarpgroupBarrier + threadIdx.x / 128, 128); }

}  // namespace moetune
