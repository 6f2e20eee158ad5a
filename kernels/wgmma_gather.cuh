// The wgmma variant's rows of X that are put in order by warps that have nothing else to do, while others already multiply
// what is in order. Tensor copies then read them, and tiles are those of a plain problem.
#pragma once
#include "epilogue.cuh"
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaGather : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::gathers_first, Shape::consumers;
  using Element = typename Shape::Element;
  using Shared = typename Shape::Shared;
  using Tile = typename Shape::Tile;

  static constexpr int warps = 4 * (1 + consumers);  // of a block: a row each to begin with
  static constexpr int helpers = 2, run = 4;         // then these of its producer go on, by so many rows
  static_assert(gathered_together % run == 0 && warps % run == 0, "a run of rows is counted in one place");

  static __device__ __forceinline__ int all_rows(const Shared& shared) {
    int rows = 0;
    for (int e = threadIdx.x % 32; e < Config::experts; e += 32) rows += shared.m_sizes[e];
    return __reduce_add_sync(~0u, rows);
  }

  // A warp copies rows [first, first + count) of expert order and tells; with the last of all it makes their count whole.
  template <int unrolled>
  static __device__ __forceinline__ void copy(const Args& args, int first, int count, int rows) {
    const int lane = threadIdx.x % 32;
    const int mine = lane < count ? static_cast<int>(source_row<Config>(args, first + lane)) : 0;
    for (int r = 0; r < count; ++r) {
      const auto* from = reinterpret_cast<const uint4*>(static_cast<const Element*>(args.x) + __shfl_sync(~0u, mine, r) * args.k);
      auto* to = reinterpret_cast<uint4*>(static_cast<Element*>(args.gathered_x) + (first + r) * args.k);
      const int pieces = static_cast<int>(args.k / 8);
#pragma unroll unrolled
      for (int i = lane; i < pieces; i += 32) to[i] = __ldg(from + i);
    }
    __syncwarp();
    if (lane == 0) {
      __threadfence();
      const int missing = first + count == rows ? (gathered_together - rows % gathered_together) % gathered_together : 0;
      atomicAdd(args.gathered + first / gathered_together, count + missing);
    }
  }

  // All warps of all blocks call this, when m_sizes are in shared memory.
  static __device__ __forceinline__ void begin(const Args& args, const Shared& shared) {
    if constexpr (gathers_first) {
      const int rows = all_rows(shared), row = blockIdx.x * warps + threadIdx.x / 32;
      if (row < rows) copy<8>(args, row, 1, rows);
    }
  }
  // The rest. That they run ahead of the tiles by hundreds of MB costs at most 0.6 % (waiting for tiles; H200).
  static __device__ __forceinline__ void go_on(const Args& args, const Shared& shared, int helper) {
    const int rows = all_rows(shared);
    for (int first = gridDim.x * warps + (blockIdx.x * helpers + helper) * run; first < rows; first += gridDim.x * helpers * run)
      copy<4>(args, first, min(run, rows - first), rows);
  }

  // Waits until the tile's rows are in order, for lanes of a warp or one thread; a block of a cluster may have none, and where
  // they would begin nobody counts. Who copies them by a tensor map has yet to pass fence_async_global.
  template <int lanes>
  static __device__ __forceinline__ void wait(const Args& args, const Tile& tile) {
    const int end = tile.rows == 0 ? 0 : tile.row + tile.rows;
    for (int place = tile.row / gathered_together + static_cast<int>(threadIdx.x % lanes); place * gathered_together < end; place += lanes)
      while (load_relaxed(args.gathered + place) < gathered_together) {
      }
    if constexpr (lanes > 1) __syncwarp();
    __threadfence();
  }
  // The last block leaves the counts as it found them.
  static __device__ __forceinline__ void forget(const Args& args, int rows) {
    for (int place = 0; place * gathered_together < rows; ++place) args.gathered[place] = 0;
  }
};

}  // namespace moetune
