// Comparing every element of a result with the reference, which is kept in fp32 and expert order.
#pragma once
#include "epilogue.cuh"

namespace moetune {

// Counters that a comparison adds up; the host clears them before. Twin of ComparisonCounts in the cuda backend.
struct Comparison {
  unsigned long long mismatches;  // not bit-identical to the rounded reference
  unsigned long long first;       // smallest row * n + column, expert order, of a mismatch
  double error;                   // sum of squares of result - reference; NaN results add infinity
  double reference;               // sum of squares of the reference
  unsigned max_ulps_bits;         // float bits of the largest error in ulps
  unsigned padding;
};

__device__ __forceinline__ bool is_nan(float x) { return !(x == x); }

// rms > 0 also measures errors against the reference; an ulp is that of max(|reference|, rms) with `precision` bits.
template <class Element>
__device__ __forceinline__ void compare(const Element* y, const float* reference, const int* indices, const float* weights, int rows,
                                        long long n, bool scattered, float rms, int precision, Comparison* out) {
  unsigned long long mismatches = 0, first = ~0ull;
  double error = 0;
  float max_ulps = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long target = (scattered ? indices[row] : row) * n;
    const float weight = weights ? to_float(round_to<Element>(weights[indices[row]])) : 1.0f;
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const float exact = reference[row * n + j];
      const float want = to_float(round_to<Element>(weights ? to_float(round_to<Element>(exact)) * weight : exact));
      const float got = to_float(y[target + j]);
      if (__float_as_uint(got) != __float_as_uint(want) && !(got == 0.0f && want == 0.0f)) {
        ++mismatches;
        first = min(first, static_cast<unsigned long long>(row * n + j));
      }
      if (rms > 0) {
        const float truth = exact * weight;
        const float difference = is_nan(got) ? __int_as_float(0x7f800000) : fabsf(got - truth);
        error += static_cast<double>(difference) * difference;
        // ilogb of a normal number: its exponent bits.
        const int exponent = static_cast<int>(__float_as_uint(fmaxf(fabsf(truth), rms)) >> 23) - 127;
        const float ulp = __int_as_float(max(1, exponent - precision + 1 + 127) << 23);
        max_ulps = fmaxf(max_ulps, difference / ulp);
      }
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    mismatches += __shfl_down_sync(~0u, mismatches, step);
    first = min(first, __shfl_down_sync(~0u, first, step));
    error += __shfl_down_sync(~0u, error, step);
    max_ulps = fmaxf(max_ulps, __shfl_down_sync(~0u, max_ulps, step));
  }
  if (threadIdx.x % 32 == 0) {
    if (mismatches) atomicAdd(&out->mismatches, mismatches), atomicMin(&out->first, first);
    if (rms > 0) atomicAdd(&out->error, error), atomicMax(&out->max_ulps_bits, __float_as_uint(max_ulps));
  }
}

// Sum of squares of the reference, weighted as the result is.
template <class Element>
__device__ __forceinline__ void sum_squares(const float* reference, const int* indices, const float* weights, int rows, long long n, Comparison* out) {
  double sum = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const float weight = weights ? to_float(round_to<Element>(weights[indices[row]])) : 1.0f;
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const double value = static_cast<double>(reference[row * n + j]) * weight;
      sum += value * value;
    }
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&out->reference, sum);
}

// How many bytes of a region differ from `byte`: guards and rows that nobody may write.
__device__ __forceinline__ void count_changed(const unsigned char* region, unsigned long long bytes, unsigned char byte, unsigned long long* changed) {
  unsigned long long count = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step)
    count += region[i] != byte;
  for (int half = 16; half > 0; half /= 2) count += __shfl_down_sync(~0u, count, half);
  if (threadIdx.x % 32 == 0 && count) atomicAdd(changed, count);
}

// Elements of y that still hold the fill pattern, all bits set (a NaN in every format).
template <class Element>
__device__ __forceinline__ void count_unwritten(const Element* y, unsigned long long count, unsigned long long* unwritten) {
  unsigned long long found = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    bool all = true;
    if constexpr (sizeof(Element) == 2) all = reinterpret_cast<const unsigned short*>(y)[i] == 0xffffu;
    else all = reinterpret_cast<const unsigned*>(y)[i] == 0xffffffffu;
    found += all;
  }
  for (int half = 16; half > 0; half /= 2) found += __shfl_down_sync(~0u, found, half);
  if (threadIdx.x % 32 == 0 && found) atomicAdd(unwritten, found);
}

}  // namespace moetune
