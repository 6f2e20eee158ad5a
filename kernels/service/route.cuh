// Sorts the rows of a routing by expert: from the experts that each token picked to m_sizes and gather_indices.
#pragma once
#include "service/warp.cuh"

namespace moetune {

// One block of 1024 threads an expert. Expert e of this rank is `first_expert` + e of the model; slots of other experts
// are left out. Rows of an expert are in the order of their slots, so that the result is deterministic. No block waits
// for another: each counts the slots of the experts before its own. The last block writes -1 from the last row up to
// `rows`.
template <class Id>
__device__ __forceinline__ void route(int* m_sizes, int* gather_indices, const Id* ids, int slots, int first_expert,
                                      int rows) {
  constexpr int threads = 1024, warps = threads / 32, turns = 4;  // slots of a thread that are ranked at once
  __shared__ int counts[2];                                       // slots of experts before this one, and of this one
  __shared__ int of_warp[2][turns][warps];
  const int expert = blockIdx.x, experts = gridDim.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Below 0 for slots of experts that are not here.
  const auto expert_of = [&](int slot) {
    const long long id = slot < slots ? static_cast<long long>(ids[slot]) - first_expert : -1;
    return id < experts ? static_cast<int>(id < 0 ? -1 : id) : -1;
  };
  follow_any();
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  __syncthreads();
  int before = 0, own = 0;
#pragma unroll 4
  for (int slot = threadIdx.x; slot < slots; slot += threads) {
    const int its = expert_of(slot);
    before += its >= 0 && its < expert;
    own += its == expert;
  }
  before = warp_sum(before), own = warp_sum(own);
  if (lane == 0) {
    atomicAdd(&counts[0], before);
    atomicAdd(&counts[1], own);
  }
  __syncthreads();
  int row = counts[0];
  const int end = row + counts[1];
  if (threadIdx.x == 0) m_sizes[expert] = counts[1];
  for (int first = 0, buffer = 0; first < slots && row < end; first += turns * threads, buffer ^= 1) {
    bool mine[turns];
    int rank[turns];  // in the warp
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      mine[i] = expert_of(first + i * threads + threadIdx.x) == expert;
      const unsigned ballot = __ballot_sync(~0u, mine[i]);
      rank[i] = __popc(ballot & ((1u << lane) - 1));
      if (lane == 0) of_warp[buffer][i][warp] = __popc(ballot);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < turns; ++i) {
      const int its = of_warp[buffer][i][lane];
      const int target = row + warp_sum(lane < warp ? its : 0) + rank[i];
      if (mine[i] && target < rows) gather_indices[target] = first + i * threads + threadIdx.x;
      row += warp_sum(its);
    }
  }
  if (expert == experts - 1)
    for (int i = end + threadIdx.x; i < rows; i += threads) gather_indices[i] = -1;
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
