// A thin function per instruction; no policy.
#pragma once
#include "numbers.cuh"

namespace moetune {

__forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// clang-format off
// Copies `bytes` (4, 8 or 16) from global to shared memory, or writes as many zeros where not `valid`: the source is
// then not read. A predicate needs fewer instructions than a count of bytes.
template <int bytes>
__forceinline__ void cp_async(unsigned destination, const void* source, bool valid) {
  if constexpr (bytes == 16)
    asm volatile("{ .reg .pred ignore; setp.eq.u32 ignore, %2, 0; "
                 "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, ignore; }"
                 ::"r"(destination), "l"(source), "r"(static_cast<unsigned>(valid)) : "memory");
  else
    asm volatile("{ .reg .pred ignore; setp.eq.u32 ignore, %2, 0; cp.async.ca.shared.global [%0], [%1], %3, ignore; }"
                 ::"r"(destination), "l"(source), "r"(static_cast<unsigned>(valid)), "n"(bytes) : "memory");
}

// The same for 16 bytes, and only if place < end. No branch: the assembler inserts useless loads before the first copy
// after one.
__forceinline__ void cp_async_below(int place, int end, unsigned destination, const void* source, bool valid) {
  asm volatile("{ .reg .pred ignore, below; setp.eq.u32 ignore, %2, 0; setp.lt.s32 below, %3, %4;\n"
               "@below cp.async.cg.shared.global.L2::128B [%0], [%1], 16, ignore; }"
               ::"r"(destination), "l"(source), "r"(static_cast<unsigned>(valid)), "r"(place), "r"(end) : "memory");
}

__forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of this thread's newest groups are still under way.
template <int pending>
__forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__forceinline__ void ldmatrix_x4(unsigned (&fragment)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

// The same of transposed matrices.
__forceinline__ void ldmatrix_x4_transposed(unsigned (&fragment)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address)
               : "memory");
}

// The first or second two of four e4m3 elements as fp16, exactly.
__forceinline__ unsigned widen_pair(unsigned four, int second) {
  unsigned two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(static_cast<unsigned short>(four >> 16 * second)));
  return two;
}

// d[16, 8] += a[16, k] b[k, 8], fp32 accumulation; a row-major, b column-major; k elements take 32 bytes. Only sm_89
// and sm_120 multiply fp8 by mma.sync. Elsewhere ptxas would widen it and add each product to d alone; here mma adds.
#define MOETUNE_MMA(shape, type)                                                                                   \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, " \
               "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class Element>
__forceinline__ void mma_m16n8(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (is_bf16<Element>) {
    MOETUNE_MMA("m16n8k16", "bf16");
  } else if constexpr (sizeof(Element) == 2) {
    MOETUNE_MMA("m16n8k16", "f16");
  } else if constexpr (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200) {
    MOETUNE_MMA("m16n8k32", "e4m3");
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // pairs along k in another order, the same for a and b
      const unsigned pairs[] = {widen_pair(a[0], i), widen_pair(a[1], i), widen_pair(a[2], i), widen_pair(a[3], i)};
      mma_m16n8<fp16>(d, pairs, widen_pair(b0, i), widen_pair(b1, i));
    }
  }
}
// clang-format on

// Loads a word that other blocks write, never from a cache of this SM.
__forceinline__ unsigned load_relaxed(const unsigned* word) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

// From shared memory, in the order of the program.
__forceinline__ void load_shared(uint4& to, unsigned from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "r"(from));
}
__forceinline__ void load_shared(unsigned& low, unsigned& high, unsigned from) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(from));
}
__forceinline__ void load_shared(unsigned& to, unsigned from) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(from));
}
__forceinline__ void load_shared_half(unsigned& to, unsigned from) {
  unsigned short half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from));
  to = half;
}

}  // namespace moetune
