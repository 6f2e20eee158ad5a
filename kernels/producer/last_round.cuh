// The last, incomplete round of tiles, shared by all blocks (share_last_round in tiles.h): each of its tiles is begun
// by one block; blocks that would be idle multiply what is missing, at the same steps along k for all tiles, so that
// tiles that need the same rows read the same part of k at the same time.
#pragma once
#include "ptx.cuh"
#include "scheduler.cuh"

namespace moetune {

struct SharedLastRound {
  LastRound* last;  // in shared memory

  __forceinline__ explicit SharedLastRound(LastRound* place) : last(place) {}
  template <class Scheduler>
  __forceinline__ void plan(typename Scheduler::State& s, int depth, bool) const {
    const int tiles = Scheduler::all_tiles(s);
    const LastRound shared = share_last_round(tiles, depth, Scheduler::round(), Scheduler::block_k);
    s.whole = tiles - shared.tiles;
    if (threadIdx.x % 32 == 0) *last = shared;
    __syncwarp();
  }
  // The tile at the index, which stands for a whole tile, its beginning or a missing part of it.
  template <class State>
  __forceinline__ int tile_at(const State& s, Tile& tile) const {
    tile.piece = kWhole;
    const int part = part_at(s);
    if (part < 0) return s.index;
    return part < last->parts * last->tiles ? s.whole + part % last->tiles : kBeyondAll;
  }
  template <class State>
  __forceinline__ void advance(State& s, PartialTile& tile, int round) const {
    tile.first_step = 0, tile.end_step = last->steps, tile.begins = s.index - s.whole < round;
    const int part = part_at(s);
    if (s.index < s.whole) {
      s.index += round;
    } else if (part < 0) {
      tile.end_step = last->own, tile.piece = PartialTile::beginning((s.index - s.whole) * last->parts);
      s.index = kBeyondAll;
    } else {
      const int number = part / last->tiles, rest = last->steps - last->own;
      tile.first_step = last->own + number * rest / last->parts;
      tile.end_step = last->own + (number + 1) * rest / last->parts;
      static_assert(kMaxParts == 2, "the first of two parts adds the second");
      tile.piece = PartialTile::missing_part(part % last->tiles * last->parts + number, number == 0 && last->parts > 1);
      s.index += round - last->tiles;
    }
  }
  static __forceinline__ Steps steps_of(const PartialTile& tile, int) { return {tile.first_step, tile.end_step}; }
  static __forceinline__ bool all_begin(const PartialTile& tile) { return tile.begins; }

  // One thread calls leave() after a barrier that follows all threads' stores of a part, and wait() before a barrier
  // that precedes their loads. Only one thread waits for a part.
  static __forceinline__ void leave(const Args& args, int part) {
    __threadfence();
    atomicExch(args.counters + first_arrival + part, 1);
  }
  static __forceinline__ void wait(const Args& args, int part) {
    unsigned* left = args.counters + first_arrival + part;
    while (load_relaxed(left) == 0) {
    }
    *left = 0;
    __threadfence();
  }

 private:
  static constexpr int kBeyondAll = 0x7fffffff;

  // Number of the part at the index; below zero for whole tiles and beginnings.
  template <class State>
  __forceinline__ int part_at(const State& s) const {
    return s.index - s.whole - last->tiles;
  }
};

}  // namespace moetune
