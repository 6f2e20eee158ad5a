// Cuts the last tiles along k into equal pieces, so that blocks finish at about the same time: the tiles of the last,
// incomplete round, and half a round more where blocks take tiles from a counter; all tiles where there are fewer than
// two rounds. Each piece leaves its sums in memory; the last to finish adds them up in order of k, so that the result
// doesn't depend on which was last.
#pragma once
#include "ptx.cuh"
#include "scheduler.cuh"

namespace moetune {

template <int split>
struct TilePieces {
  __forceinline__ explicit TilePieces(LastRound*) {}
  // Tiles with fewer steps than pieces stay whole.
  template <class Scheduler>
  __forceinline__ void plan(typename Scheduler::State& s, int depth, bool dynamic) const {
    const int tiles = Scheduler::all_tiles(s), round = Scheduler::round(), more = dynamic ? (round + 1) / 2 : 0;
    s.whole = depth < split ? tiles : tiles < 2 * round ? 0 : tiles - tiles % round - more;
  }
  template <class State>
  __forceinline__ int tile_at(const State& s, Tile& tile) const {
    tile.piece = kWhole;
    if (s.index < s.whole) return s.index;
    tile.piece = s.index - s.whole;
    return s.whole + tile.piece / split;
  }
  template <class State>
  __forceinline__ void advance(State& s, Tile&, int round) const {
    s.index += round;
  }
  static __forceinline__ Steps steps_of(const Tile& tile, int depth) {
    if (tile.piece < 0) return {0, depth};
    const int piece = tile.piece % split;
    return {piece * depth / split, (piece + 1) * depth / split};
  }
  static __forceinline__ bool all_begin(const Tile&) { return true; }

  // Counts a piece whose sums are stored; true for the last of its tile, whose counter has this number. One thread
  // calls it, between a barrier after all threads' stores and one before their loads.
  static __forceinline__ bool is_last(const Args& args, int number) {
    __threadfence();
    unsigned* arrivals = args.counters + first_arrival + number;
    const bool last = atomicAdd(arrivals, 1) == split - 1;
    if (last) *arrivals = 0;
    __threadfence();
    return last;
  }
};

}  // namespace moetune
