// A thin function per instruction from sm_90 on: barriers in shared memory, tensor copies (TMA), clusters.
#pragma once
#include "args.h"
#include "ptx.cuh"

namespace moetune {

// clang-format off
// mbarriers: 8 bytes of shared memory, given by their address. A wait ends when the phase of that parity is complete.
__forceinline__ void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__forceinline__ void barrier_arrive_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the same barrier of block `rank` of the cluster. It only has to order completed reads by wgmma:
// .release.cluster would wait for every store of the thread.
__forceinline__ void barrier_arrive_at(unsigned barrier, int rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
               "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier), "r"(rank) : "memory");
}
// Arrives when all cp.async of this thread so far have landed; counts as one of the expected arrivals.
__forceinline__ void barrier_arrive_after_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// The thread sleeps until then, up to 10 ms at a time: polling takes power from the threads that multiply.
__forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 10000000; "
               "@!done bra again; }" ::"r"(barrier), "r"(parity) : "memory");
}
// Makes initialised barriers visible to the cluster and to copies.
__forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// True for one lane of a whole warp, always the same one: the compiler knows that a single lane runs what follows.
__forceinline__ bool elect_one() {
  unsigned chosen;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
  return chosen;
}

__forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks call it; lanes of a warp may arrive one by one.
__forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

// Programmatic dependent launch. The next launch may begin once every block of this one has called it or left; the next
// launch then waits until this one has ended and its stores are visible. Neither has an effect on ordinary launches.
__forceinline__ void pdl_trigger() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Named barriers of a block: 1 to 15 (0 is __syncthreads).
__forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Rewrites a copy of a tensor map in shared memory: where its matrix begins, and how many rows it has.
__forceinline__ void replace_address(unsigned map, const void* address) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;"
               ::"r"(map), "l"(address) : "memory");
}
__forceinline__ void replace_rows(unsigned map, int rows) {
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(rows) : "memory");
}
// Copies a map from shared to global memory, where copies can read it; for a whole warp, which then acquires it.
__forceinline__ void publish_map(TensorMap* destination, unsigned map) {
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
               ::"l"(destination), "r"(map) : "memory");
}
__forceinline__ void acquire_map(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Loads from a tensor map to shared memory; the bytes are counted on `barrier`. With more than one block each of these
// blocks of the cluster gets them, at the same address and counted on its own barrier.
#define MOETUNE_LOAD_OF "cp.async.bulk.tensor."
#define MOETUNE_LOAD_TO ".shared::cluster.global.mbarrier::complete_tx::bytes"
#define MOETUNE_LOAD(dimensions, place, ...)                                                                          \
  if constexpr (blocks > 1)                                                                                           \
    asm volatile(MOETUNE_LOAD_OF dimensions MOETUNE_LOAD_TO ".multicast::cluster [%0], [%1, " place "], [%2], %3;"    \
                 ::"r"(destination), "l"(&map), "r"(barrier), "h"(static_cast<unsigned short>((1 << blocks) - 1)),    \
                   __VA_ARGS__ : "memory");                                                                           \
  else                                                                                                                \
    asm volatile(MOETUNE_LOAD_OF dimensions MOETUNE_LOAD_TO " [%0], [%1, " place "], [%2];"                           \
                 ::"r"(destination), "l"(&map), "r"(barrier), "n"(0), __VA_ARGS__ : "memory")

// `bytes` (a multiple of 16) from global memory.
__forceinline__ void load_bytes(unsigned destination, const void* source, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(destination), "l"(source), "r"(bytes), "r"(barrier) : "memory");
}
// The box at (row, column).
template <int blocks = 1>
__forceinline__ void load_box(unsigned destination, const TensorMap& map, unsigned barrier, int row, int column) {
  MOETUNE_LOAD("2d", "{%4, %5}", "r"(column), "r"(row));
}
// The same from one matrix of a map of many; zeros past its end.
template <int blocks>
__forceinline__ void load_box_of(int matrix, unsigned destination, const TensorMap& map, unsigned barrier, int row,
                                 int column) {
  MOETUNE_LOAD("3d", "{%4, %5, %6}", "r"(column), "r"(row), "r"(matrix));
}
// The box at (row, column) of rows [first, first + rows) of a ragged map (args.h); zeros past them.
template <int blocks>
__forceinline__ void load_box_of_rows(int first, int rows, unsigned destination, const TensorMap& map, unsigned barrier,
                                      int row, int column) {
  MOETUNE_LOAD("4d", "{%4, %5, %6, %7}", "r"(column), "r"(kRaggedRows - rows + row), "r"(first + rows),
               "r"(kRaggedRows));
}
// Gate and up rows of an expert's W that alternate in groups of eight (args.h), 16 times `group` and on.
template <int blocks>
__forceinline__ void load_gates_and_ups(int matrix, unsigned destination, const TensorMap& map, unsigned barrier,
                                        int group, int column) {
  MOETUNE_LOAD("5d", "{%4, %5, %5, %6, %7}", "r"(column), "r"(0), "r"(group), "r"(matrix));
}
// load_box with a cache policy for L2.
__forceinline__ void load_box(unsigned destination, const TensorMap& map, unsigned barrier, int row, int column,
                              unsigned long long policy) {
  asm volatile(MOETUNE_LOAD_OF "2d" MOETUNE_LOAD_TO ".L2::cache_hint [%0], [%1, {%4, %3}], [%2], %5;"
               ::"r"(destination), "l"(&map), "r"(barrier), "r"(row), "r"(column), "l"(policy) : "memory");
}
__forceinline__ unsigned long long policy_to_keep() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__forceinline__ unsigned long long policy_to_drop() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Stores `bytes` (a multiple of 16) from shared to global memory; part of this thread's current group of stores.
__forceinline__ void store_bytes(void* destination, unsigned source, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(destination), "r"(source), "r"(bytes) : "memory");
}
// Stores the first `rows` rows of a box from shared memory to rows [first, first + rows) of a ragged map (args.h), from
// `column` on; clipped at the last column. With a cache policy for L2 or without.
#define MOETUNE_STORE_BOX_OF_ROWS "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group"
__forceinline__ void store_box_of_rows(int first, int rows, unsigned source, const TensorMap& map, int column) {
  asm volatile(MOETUNE_STORE_BOX_OF_ROWS " [%0, {%2, %3, %4, %5}], [%1];"
               ::"l"(&map), "r"(source), "r"(column), "r"(kRaggedRows - rows), "r"(first + rows), "r"(kRaggedRows)
               : "memory");
}
__forceinline__ void store_box_of_rows(int first, int rows, unsigned source, const TensorMap& map, int column,
                                       unsigned long long policy) {
  asm volatile(MOETUNE_STORE_BOX_OF_ROWS ".L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;"
               ::"l"(&map), "r"(source), "r"(column), "r"(kRaggedRows - rows), "r"(first + rows), "r"(kRaggedRows),
                 "l"(policy) : "memory");
}
// Adds to global memory, rounding once, without waiting: one value, or two neighbours.
__forceinline__ void add_to_global(float* to, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__forceinline__ void add_to_global(float* to, float low, float high) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(low), "f"(high) : "memory");
}
__forceinline__ void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most `pending` groups of this thread have not yet read their source.
template <int pending>
__forceinline__ void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Orders this thread's ordinary accesses to shared memory before copies and wgmma that follow a barrier.
__forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// The same for global memory, also for writes of other threads that this thread has seen.
__forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Four 8x8 matrices of 16-bit elements to shared memory; lane i gives the address of row i % 8 of matrix i / 8. With
// `transposed` it is column i % 8 that is stored there.
template <bool transposed>
__forceinline__ void stmatrix_x4(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
  if constexpr (transposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// An 8 x 8 matrix of 16-bit elements, of which lane i has two neighbours of row i / 4, transposed.
__forceinline__ unsigned transposed_8x8(unsigned pair) {
  unsigned other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
}

// Two of them, transposed; lanes 0 to 15 give the addresses.
__forceinline__ void stmatrix_x2_transposed(unsigned address, unsigned a, unsigned b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
               ::"r"(address), "r"(a), "r"(b) : "memory");
}
// clang-format on

}  // namespace moetune
