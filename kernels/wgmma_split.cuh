// The wgmma variant's tiles that are cut along k, a part for each warpgroup (see split.cuh).
#pragma once
#include "split.cuh"
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaSplit : WgmmaShape<Config>, Split<Config::split> {
  using Shape = WgmmaShape<Config>;
  using Shape::consumers, Shape::groups, Shape::width, Shape::pingpong, Shape::swapped, Shape::warpgroup_sync;
  using Shared = typename Shape::Shared;
  using Sums = typename Shape::Sums;

  static constexpr int split = Config::split;
  static constexpr int parts = pingpong ? 1 : consumers;  // of a tile, one a warpgroup
  static constexpr int vectors = width / 8;               // of four sums a thread: swapped, those of 8 rows

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
    if (threadIdx.x % 128 == 0) shared.last[consumer] = Split<split>::comes_last(args, part_of(tile, consumer));
    warpgroup_sync();
    return shared.last[consumer];
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
