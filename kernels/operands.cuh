// Filling operands, moving rows, and probing the clock: the work around a measured kernel.
#pragma once
#include "epilogue.cuh"

namespace moetune {

// values: 0 integer, 1 random, 2 weights; the formulas stand at operand_value in src/workload/problem.h.
template <class Element>
__device__ __forceinline__ void fill(Element* out, unsigned long long count, unsigned long long base, int values) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x * 2;
  for (unsigned long long i = (static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x) * 2; i < count; i += step) {
    const unsigned long long h = splitmix64(base + i / 2);
    for (int half = 0; half < 2 && i + half < count; ++half) {
      const unsigned bits = static_cast<unsigned>(half ? h >> 32 : h);
      out[i + half] = round_to<Element>(values == 0 ? integer_value(bits) : values == 1 ? random_value(bits) : weight_value(bits));
    }
  }
}

// A separate gather or scatter of rows, as somebody without a fused kernel needs it. One block a row, 16 bytes a thread
// where rows are whole multiples of that.
//   gather   out[i] = in[indices[i] / top_k]
//   scatter  out[indices[i]] = in[i], times the row's weight where there are weights
template <class Element>
__device__ __forceinline__ void move_rows(Element* out, const Element* in, const int* indices, const float* weights, int rows,
                                          long long width, int top_k, bool scatter) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long source = scatter ? row : indices[row] / top_k;
    const long long target = scatter ? indices[row] : row;
    if (weights) {
      const float weight = to_float(round_to<Element>(weights[indices[row]]));
      for (long long j = threadIdx.x; j < width; j += blockDim.x)
        out[target * width + j] = round_to<Element>(to_float(in[source * width + j]) * weight);
    } else if (width * sizeof(Element) % 16 == 0) {
      const uint4* from = reinterpret_cast<const uint4*>(in + source * width);
      uint4* to = reinterpret_cast<uint4*>(out + target * width);
      for (long long j = threadIdx.x; j < width * static_cast<long long>(sizeof(Element)) / 16; j += blockDim.x) to[j] = from[j];
    } else {
      for (long long j = threadIdx.x; j < width; j += blockDim.x) out[target * width + j] = in[source * width + j];
    }
  }
}

// Every SM's cycle counter beside the time: out[2 * sm] and out[2 * sm + 1]. Two readings of one SM tell its clock between
// them. Launch several blocks an SM, so that none is missed.
__device__ __forceinline__ void read_clocks(unsigned long long* out) {
  unsigned sm;
  unsigned long long time;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  if (threadIdx.x == 0) *reinterpret_cast<ulonglong2*>(out + 2 * sm) = make_ulonglong2(clock64(), time);
}

// Bandwidth: every byte is read once (and written once by copy).
__device__ __forceinline__ void read_all(const uint4* in, unsigned long long count, unsigned* out) {
  unsigned sum = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = in[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *out = sum;  // never seen by the compiler as dead
}

__device__ __forceinline__ void copy_all(const uint4* in, unsigned long long count, uint4* out) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) out[i] = in[i];
}

}  // namespace moetune
