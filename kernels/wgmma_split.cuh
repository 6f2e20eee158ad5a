// Tiles that are cut along k: each piece leaves its sums in memory, and the block that comes last adds them up, in order
// of k, so that a result doesn't depend on who was last. Which tiles are cut stands in scheduler.cuh.
#pragma once
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaSplit : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::consumers, Shape::groups, Shape::width, Shape::pingpong, Shape::swapped, Shape::warpgroup_sync;
  using Shared = typename Shape::Shared;
  using Sums = typename Shape::Sums;

  static constexpr int split = Config::split;
  static constexpr int parts = pingpong ? 1 : consumers;  // of a tile, one a warpgroup
  static constexpr int vectors = width / 8;               // of four sums a thread: swapped, those of 8 rows

  // Steps along k of a tile or a piece: [first, end).
  struct Steps {
    int first, end;
  };
  static __device__ __forceinline__ Steps steps_of(const Args& args, const Tile& tile) {
    const int depth = Shape::depth(args);
    if (split == 1 || tile.piece < 0) return {0, depth};
    const int piece = tile.piece % split;
    return {piece * depth / split, (piece + 1) * depth / split};
  }

  // Sums of a tile as they lie in memory: [parts][split][groups][vectors][128 threads], four a thread.
  static constexpr int of_piece = groups * vectors * 128;
  static __device__ __forceinline__ int part_of(const Tile& tile, int consumer) {
    return tile.piece / split * parts + (pingpong ? 0 : consumer);
  }
  static __device__ __forceinline__ float4* pieces_of(const Args& args, const Tile& tile, int consumer) {
    return reinterpret_cast<float4*>(args.workspace) + static_cast<long long>(part_of(tile, consumer)) * (split * of_piece) + threadIdx.x % 128;
  }

  // Leaves a piece's sums; true for the warpgroup that is then to store the tile. All threads of a warpgroup call this.
  static __device__ __forceinline__ bool leave_sums(const Args& args, Shared& shared, const Tile& tile, int consumer, const Sums& sum) {
    float4* mine = pieces_of(args, tile, consumer) + tile.piece % split * of_piece;
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        if (swapped && v * 8 >= tile.rows) break;
        const float* d = sum[g] + v * 4;
        __stcg(mine + (g * vectors + v) * 128, make_float4(d[0], d[1], d[2], d[3]));
      }
    warpgroup_sync();
    if (threadIdx.x % 128 == 0) {
      __threadfence();  // after the barrier: for all threads' stores
      unsigned* arrivals = args.counters + first_arrival + part_of(tile, consumer);
      const unsigned before = atomicAdd(arrivals, 1);
      if (before == split - 1) *arrivals = 0;
      __threadfence();
      shared.arrived[consumer] = before;
    }
    warpgroup_sync();
    return shared.arrived[consumer] == split - 1;
  }

  // The pieces' sums, added as they are stored: in registers they would be tied to wgmma's, and the assembler would
  // serialise it.
  struct Total {
    const float4* pieces;
    __device__ __forceinline__ float4 operator()(int g, int v) const {
      float4 total = __ldcg(pieces + (g * vectors + v) * 128);
#pragma unroll
      for (int p = 1; p < split; ++p) {
        const float4 more = __ldcg(pieces + p * of_piece + (g * vectors + v) * 128);
        total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
      }
      return total;
    }
  };
};

}  // namespace moetune
