// The wgmma variant's tiles that are cut along k, a part for each warpgroup (see split.cuh).
#pragma once
#include "split.cuh"
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaSplit : WgmmaShape<Config>, Split<Config::split> {
  using Shape = WgmmaShape<Config>;
  using Shape::consumers, Shape::groups, Shape::width, Shape::pingpong, Shape::swapped, Shape::shares, Shape::warpgroup_sync;
  using Shared = typename Shape::Shared;
  using Tile = typename Shape::Tile;
  using Sums = typename Shape::Sums;

  static constexpr int split = Config::split;
  static constexpr int parts = pingpong ? 1 : consumers;  // of a tile, one a warpgroup
  static constexpr int vectors = width / 8;               // of four sums a thread: swapped, those of 8 rows

  // Sums of a tile as they lie in memory: [parts][split][groups][vectors][128 threads], four a thread. Of tiles that are
  // shared out, a missing part is alone in place of `split` pieces.
  static constexpr int of_piece = groups * vectors * 128, pieces = shares ? 1 : split;
  static __device__ __forceinline__ int part_of(const Tile& tile, int consumer) {
    const int number = shares ? (tile.piece < 0 ? -2 - tile.piece : tile.piece / 2) : tile.piece / split;
    return number * parts + (pingpong ? 0 : consumer);
  }
  static __device__ __forceinline__ int thread() {  // read anew: a register less beside all sums
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread % 128;
  }
  static __device__ __forceinline__ float4* pieces_of(const Args& args, const Tile& tile, int consumer) {
    return reinterpret_cast<float4*>(args.workspace) + static_cast<long long>(part_of(tile, consumer)) * (pieces * of_piece) + thread();
  }
  static __device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
  static __device__ __forceinline__ void leave_piece(float4* piece, const Tile& tile, const Sums& sum) {
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        if (swapped && v * 8 >= tile.rows) break;
        const float* d = sum[g] + v * 4;
        __stcg(piece + (g * vectors + v) * 128, make_float4(d[0], d[1], d[2], d[3]));
      }
    warpgroup_sync();
  }

  // Leaves a piece's sums; true for the warpgroup that is then to store the tile. All threads of a warpgroup call this.
  static __device__ __forceinline__ bool leave_sums(const Args& args, Shared& shared, const Tile& tile, int consumer, const Sums& sum) {
    leave_piece(pieces_of(args, tile, consumer) + tile.piece % split * of_piece, tile, sum);
    if (threadIdx.x % 128 == 0) shared.last[consumer] = Split<split>::comes_last(args, part_of(tile, consumer));
    warpgroup_sync();
    return shared.last[consumer];
  }

  // Of a tile that is shared out: a warpgroup leaves its part's sums, with the next part's where that belongs to it;
  static __device__ __forceinline__ void leave_part(const Args& args, const Tile& tile, int consumer, const Sums& sum) {
    const int part = part_of(tile, consumer);
    float4* mine = pieces_of(args, tile, consumer);
    leave_piece(mine, tile, sum);
    if (tile.piece % 2 != 0) {
      if (threadIdx.x % 128 == 0) Split<split>::wait(args, part + parts);
      warpgroup_sync();
#pragma unroll 1
      for (int v = 0; v < groups * vectors; v += 2) {
        float4 sums[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) sums[i] = sum_of(__ldcg(mine + (v + i) * 128), __ldcg(mine + parts * of_piece + (v + i) * 128));
#pragma unroll
        for (int i = 0; i < 2; ++i) __stcg(mine + (v + i) * 128, sums[i]);
      }
      warpgroup_sync();
    }
    if (threadIdx.x % 128 == 0) Split<split>::leave(args, part);
  }
  // the one that has begun the tile waits for them.
  static __device__ __forceinline__ void wait_for_parts(const Args& args, const Tile& tile, int consumer) {
    if (threadIdx.x % 128 == 0) Split<split>::wait(args, part_of(tile, consumer));
    warpgroup_sync();
  }

  // What a tile's sums are when it is stored, four a thread: of group g, from row or column 8 v of wgmma's N side. with()
  // calls `use` with that, a few at a time: in registers, sums of several pieces would be tied to wgmma's, and the assembler
  // would serialise it.
  struct Own {  // with what others left of a tile that is shared out
    const Sums& sum;
    const Args& args;
    const Tile& tile;
    int consumer;
    __device__ __forceinline__ float4 operator()(int g, int v) const {
      return make_float4(sum[g][4 * v], sum[g][4 * v + 1], sum[g][4 * v + 2], sum[g][4 * v + 3]);
    }
    template <class Use>
    __device__ __forceinline__ void with(const Use& use) const {
      if (!shares || tile.piece == -1) {
        use(*this);
      } else {
        const float4* left = pieces_of(args, tile, consumer);
        use([&](int g, int v) { return sum_of((*this)(g, v), __ldcg(left + (g * vectors + v) * 128)); });
      }
    }
  };
  struct Total {  // of all pieces
    const float4* pieces;
    __device__ __forceinline__ float4 operator()(int g, int v) const {
      float4 total = __ldcg(pieces + (g * vectors + v) * 128);
#pragma unroll
      for (int p = 1; p < split; ++p) total = sum_of(total, __ldcg(pieces + p * of_piece + (g * vectors + v) * 128));
      return total;
    }
    template <class Use>
    __device__ __forceinline__ void with(const Use& use) const {
      use(*this);
    }
  };
};

}  // namespace moetune
