// Experts in the order of their rows.
#pragma once
#include "producer/ring.cuh"

namespace moetune {

// Sorts the experts by their rows, which lie in shared memory: most first, or fewest. All threads of the block call it,
// and a __syncthreads must follow.
template <class Block>
__forceinline__ void sort_experts(const Block& block, bool fewest_first) {
  constexpr int experts = Block::experts, threads = Block::threads, count = (experts + threads - 1) / threads;
  int* m_sizes = block.m_sizes();
  int* expert_of = block.template at<int>(Block::layout.expert_of);
  int* row_of = block.template at<int>(Block::layout.row_of);
  int rows[count], row[count], place[count];
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int e = threadIdx.x + i * threads;
    rows[i] = e < experts ? m_sizes[e] : 0;
    row[i] = place[i] = 0;
    for (int other = 0; other < experts; ++other) {
      const int m = m_sizes[other];
      if (other < e) row[i] += m;
      place[i] += m > rows[i] || (m == rows[i] && other < e);
    }
    if (fewest_first) place[i] = experts - 1 - place[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int e = threadIdx.x + i * threads;
    if (e >= experts) break;
    m_sizes[place[i]] = rows[i];
    expert_of[place[i]] = e;
    row_of[place[i]] = row[i];
  }
  if (threadIdx.x == 0) {
    block.scheduler().value.expert_of = expert_of;
    block.scheduler().value.row_of = row_of;
  }
}

// The tiles of `Source`, from experts with most rows first: the longest tiles don't come last.
template <class Block, class Source>
struct TilesOfMostRowsFirst : Source {
  static __forceinline__ void begin(const Block& block) {
    sort_experts(block, false);
    __syncthreads();
  }
};

}  // namespace moetune
