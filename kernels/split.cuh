// Tiles that are cut along k: each piece leaves its sums in memory, and whoever comes last, or began the tile, adds them up
// in order of k, so that a result doesn't depend on who was last. Which tiles are cut stands in scheduler.cuh.
#pragma once
#include "ptx.cuh"
#include "scheduler.cuh"

namespace moetune {

template <int split>
struct Split {
  // Steps along k of a tile or a piece: [first, end).
  struct Steps {
    int first, end;
  };
  // Of `depth` steps of the whole tile.
  template <class Tile>
  static __device__ __forceinline__ Steps steps_of(const Tile& tile, int depth) {
    if constexpr (split == 0) {
      return {tile.first_step, tile.end_step};
    } else {
      if (split == 1 || tile.piece < 0) return {0, depth};
      const int piece = tile.piece % split;
      return {piece * depth / split, (piece + 1) * depth / split};
    }
  }

  // Whether the other pieces of this part of a tile have left their sums. One thread calls this, behind a barrier after
  // all threads' stores and before one that lets them read.
  static __device__ __forceinline__ bool comes_last(const Args& args, int part) {
    __threadfence();
    unsigned* arrivals = args.counters + first_arrival + part;
    const bool last = atomicAdd(arrivals, 1) == split - 1;
    if (last) *arrivals = 0;
    __threadfence();
    return last;
  }

  // Of tiles that are shared out: one thread calls leave() behind a barrier after all threads' stores, and wait() before
  // one that lets them read. Who waits for a part is alone with that.
  static __device__ __forceinline__ void leave(const Args& args, int part) {
    __threadfence();
    atomicExch(args.counters + first_arrival + part, 1);
  }
  static __device__ __forceinline__ void wait(const Args& args, int part) {
    unsigned* left = args.counters + first_arrival + part;
    while (load_relaxed(left) == 0) {
    }
    *left = 0;
    __threadfence();
  }
};

}  // namespace moetune
