// Sorts the rows of a routing by expert: from the experts that each token picked to m_sizes and gather_indices.
#pragma once
#include "numbers.cuh"

namespace moetune {

// How many threads of the block with `mine` there are before this one, and in all. All threads call it; `of_warp` is
// [32] ints of shared memory, free again on return.
struct Rank {
  int before, all;
};
__device__ __forceinline__ Rank rank_in_block(bool mine, int* of_warp) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const unsigned ballot = __ballot_sync(~0u, mine);
  if (lane == 0) of_warp[warp] = __popc(ballot);
  __syncthreads();
  Rank rank = {__popc(ballot & ((1u << lane) - 1)), 0};
  for (int w = 0; w < warps; ++w) {
    if (w < warp) rank.before += of_warp[w];
    rank.all += of_warp[w];
  }
  __syncthreads();
  return rank;
}

// One block an expert, of whole warps, at most 1024 threads. Expert e of this rank is `first_expert` + e of the model;
// slots of other experts are left out. Rows of an expert are in the order of their slots, so that the result is
// deterministic. No block waits for another: each counts the slots of the experts before its own. The last block writes
// -1 from the last row up to `rows`.
template <class Id>
__device__ __forceinline__ void route(int* m_sizes, int* gather_indices, const Id* ids, int slots, int first_expert,
                                      int rows) {
  __shared__ int of_warp[32];
  __shared__ int counts[2];  // slots of experts before this one, and of this one
  const int expert = blockIdx.x, experts = gridDim.x;
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  __syncthreads();
  int before = 0, own = 0;
  for (int slot = threadIdx.x; slot < slots; slot += blockDim.x) {
    const long long id = static_cast<long long>(ids[slot]) - first_expert;
    before += id >= 0 && id < expert;
    own += id == expert;
  }
  for (int step = 16; step > 0; step /= 2) {
    before += __shfl_down_sync(~0u, before, step);
    own += __shfl_down_sync(~0u, own, step);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&counts[0], before);
    atomicAdd(&counts[1], own);
  }
  __syncthreads();
  int row = counts[0];
  const int end = row + counts[1];
  if (threadIdx.x == 0) m_sizes[expert] = counts[1];
  for (int first = 0; first < slots && row < end; first += blockDim.x) {
    const int slot = first + threadIdx.x;
    const bool mine = slot < slots && static_cast<long long>(ids[slot]) - first_expert == expert;
    const Rank rank = rank_in_block(mine, of_warp);
    if (mine && row + rank.before < rows) gather_indices[row + rank.before] = slot;
    row += rank.all;
  }
  if (expert == experts - 1)
    for (int i = end + threadIdx.x; i < rows; i += blockDim.x) gather_indices[i] = -1;
}

}  // namespace moetune

extern "C" __global__ void __launch_bounds__(1024)
    route_int32(int* m_sizes, int* gather_indices, const int* ids, int slots, int first_expert, int rows) {
  moetune::route(m_sizes, gather_indices, ids, slots, first_expert, rows);
}
extern "C" __global__ void __launch_bounds__(1024)
    route_int64(int* m_sizes, int* gather_indices, const long long* ids, int slots, int first_expert, int rows) {
  moetune::route(m_sizes, gather_indices, ids, slots, first_expert, rows);
}
