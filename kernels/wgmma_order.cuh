// The wgmma variant's experts by how many rows they have, and tiles that blocks take from both ends of that order.
#pragma once
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaOrder : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::consumers, Shape::mix;
  using Shared = typename Shape::Shared;
  using Tiles = typename Shape::Tiles;

  // One block in `mix`, the last, begins with the fewest rows.
  static __device__ __forceinline__ bool from_few() { return blockIdx.x % mix == mix - 1; }

  // For all threads of the block, when m_sizes are there as they lie in memory: puts them in order.
  static __device__ __forceinline__ void sort(Shared& shared) {
    if constexpr (mix > 0) {
      constexpr int experts = Config::experts, threads = 128 * (1 + consumers), share = (experts + threads - 1) / threads;
      int rows[share], row[share], place[share];
#pragma unroll
      for (int i = 0; i < share; ++i) {
        const int e = threadIdx.x + i * threads;
        rows[i] = e < experts ? shared.m_sizes[e] : 0;
        row[i] = place[i] = 0;
        for (int other = 0; other < experts; ++other) {
          const int m = shared.m_sizes[other];
          if (other < e) row[i] += m;
          place[i] += m > rows[i] || (m == rows[i] && other < e);
        }
        if (from_few()) place[i] = experts - 1 - place[i];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < share; ++i) {
        const int e = threadIdx.x + i * threads;
        if (e >= experts) break;
        shared.m_sizes[place[i]] = rows[i];
        shared.order.expert_of[place[i]] = e;
        shared.order.row_of[place[i]] = row[i];
      }
      if (threadIdx.x == 0) {
        shared.scheduler.expert_of = shared.order.expert_of;
        shared.scheduler.row_of = shared.order.row_of;
        shared.scheduler.from_few = from_few();
      }
      __syncthreads();
    }
  }

  // The block's next tile, counted from its end; past all tiles where there are no more. The first is the block's own. For
  // all lanes of a warp.
  static __device__ __forceinline__ int take(const Args& args, const Tiles& scheduler, bool first) {
    const int few = gridDim.x / mix, many = gridDim.x - few;  // blocks at each end
    const int own = from_few() ? blockIdx.x / mix : blockIdx.x - blockIdx.x / mix;
    if (first) return own + (from_few() ? many : 0) < scheduler.tiles ? own : scheduler.tiles;
    unsigned long long taken = 0;  // from the end of many in the low half
    if (threadIdx.x % 32 == 0)
      taken = atomicAdd(reinterpret_cast<unsigned long long*>(args.counters + taken_from_ends), from_few() ? 1ull << 32 : 1ull);
    taken = __shfl_sync(~0u, taken, 0);
    const int from_most = many + static_cast<int>(static_cast<unsigned>(taken)), from_fewest = few + static_cast<int>(taken >> 32);
    if (from_most + from_fewest >= scheduler.tiles) return scheduler.tiles;
    return from_few() ? from_fewest : from_most;
  }
};

}  // namespace moetune
