// Compares every element of a result with the reference, which is in fp32 and expert order.
#pragma once
#include "args.h"
#include "numbers.cuh"

namespace moetune {

// Counters that a comparison adds up; the host clears them before. Twin of ComparisonCounts in the cuda backend.
struct Comparison {
  unsigned long long mismatches;  // not bit-identical to the rounded reference
  unsigned long long first;       // smallest row * n + column, expert order, of a mismatch
  double error;                   // sum of squares of result - reference; NaN results add infinity
  double rounding;                // the same of the rounded reference
  unsigned max_ulps_bits;         // float bits of the largest error in ulps
  unsigned padding;
};

// Weights that multiply the rows of a result, by flat slot; null if there are none. Twin of RowWeights in the cuda
// backend.
struct RowWeights {
  const float* weights;
  const int* slots;  // of each row in expert order
  bool rounded;      // the sum is rounded to the element, and so is the weight, before they are multiplied
};

__device__ __forceinline__ bool is_nan(float x) { return !(x == x); }

template <class Element>
__device__ __forceinline__ float weight_of(const RowWeights& weights, long long row) {
  if (!weights.weights) return 1;
  const float weight = weights.weights[weights.slots[row]];
  return weights.rounded ? to_float(round_to<Element>(weight)) : weight;
}

// An exponential that isn't exact, or a scale, rounds another way beside a tie.
constexpr float kUlpsBesideTie = 0.51f;

// Adds what the threads of a warp found.
__device__ __forceinline__ void add(unsigned long long mismatches, unsigned long long first, double error,
                                    double rounding, float max_ulps, bool measures, Comparison* out) {
  for (int step = 16; step > 0; step /= 2) {
    mismatches += __shfl_down_sync(~0u, mismatches, step);
    first = min(first, __shfl_down_sync(~0u, first, step));
    error += __shfl_down_sync(~0u, error, step);
    rounding += __shfl_down_sync(~0u, rounding, step);
    max_ulps = fmaxf(max_ulps, __shfl_down_sync(~0u, max_ulps, step));
  }
  if (threadIdx.x % 32 == 0) {
    if (mismatches) atomicAdd(&out->mismatches, mismatches), atomicMin(&out->first, first);
    if (measures) atomicAdd(&out->error, error), atomicAdd(&out->rounding, rounding);
    if (measures) atomicMax(&out->max_ulps_bits, __float_as_uint(max_ulps));
  }
}

// `d` has row i of expert order at row to[i], or at row i without `to`. With `rms`, errors are measured too: an ulp is
// that of max(|reference|, rms[row / rms_rows]) with `precision` bits.
template <class Element>
__device__ __forceinline__ void compare(const Element* d, const float* reference, const int* to, RowWeights weights,
                                        long long rows, long long n, const float* rms, long long rms_rows,
                                        int precision, Comparison* out) {
  unsigned long long mismatches = 0, first = ~0ull;
  double error = 0, rounding = 0;
  float max_ulps = 0;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const Element* const target = d + (to ? to[row] : row) * n;
    const float weight = weight_of<Element>(weights, row);
    const float floor = rms ? rms[row / rms_rows] : 0;
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const float exact = reference[row * n + j];
      const float sum = weights.weights && weights.rounded ? to_float(round_to<Element>(exact)) : exact;
      // Without weights nothing is multiplied: the bits of a NaN must stay.
      const float want = to_float(round_to<Element>(weights.weights ? sum * weight : exact));
      const float got = to_float(target[j]);
      if (__float_as_uint(got) != __float_as_uint(want) && !(got == 0.0f && want == 0.0f)) {
        ++mismatches;
        first = min(first, static_cast<unsigned long long>(row * n + j));
      }
      if (rms) {
        const float truth = exact * weight;
        const float most = __int_as_float(0x7f800000);  // a result too large for the format is right there
        const float difference = is_nan(got) ? most : got == want && fabsf(got) == most ? 0 : fabsf(got - truth);
        error += static_cast<double>(difference) * difference;
        if (fabsf(want) < most) rounding += static_cast<double>(want - truth) * (want - truth);
        // ilogb of a normal number: its exponent bits.
        const int exponent = static_cast<int>(__float_as_uint(fmaxf(fabsf(truth), floor)) >> 23) - 127;
        const float ulp = __int_as_float(max(1, exponent - precision + 1 + 127) << 23);
        max_ulps = fmaxf(max_ulps, difference / ulp);
      }
    }
  }
  add(mismatches, first, error, rounding, max_ulps, rms, out);
}

// The same of a quantised result, whose elements are fp8 times their scale: an ulp is that of fp8 at reference / scale.
// Sums may be `noise` times the largest value of the scale off; those ulps don't count. Mismatches are over half an ulp
// off, and a little.
__device__ __forceinline__ void compare_quantised(const fp8* d, const float* scales, const float* reference,
                                                  const int* to, long long rows, long long n, float noise,
                                                  Comparison* out) {
  const long long blocks = (n + kScaleBlock - 1) / kScaleBlock;
  unsigned long long mismatches = 0, first = ~0ull;
  double error = 0, rounding = 0;
  float max_ulps = 0;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long target = to ? to[row] : row;
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const float exact = reference[row * n + j], scale = scales[target * blocks + j / kScaleBlock];
      const float got = to_float(d[target * n + j]) * scale, want = to_float(round_to<fp8>(exact / scale)) * scale;
      const float most = __int_as_float(0x7f800000), difference = is_nan(got) ? most : fabsf(got - exact);
      const int exponent = static_cast<int>(__float_as_uint(fabsf(exact / scale)) >> 23) - 127;
      const float ulp = __int_as_float((max(exponent, -6) - 3 + 127) << 23) * scale;
      const float ulps = fmaxf(difference - noise * kMaxFp8 * scale, 0) / ulp;
      if (!(ulps <= kUlpsBesideTie)) ++mismatches, first = min(first, static_cast<unsigned long long>(row * n + j));
      error += static_cast<double>(difference) * difference;
      rounding += static_cast<double>(want - exact) * (want - exact);
      max_ulps = fmaxf(max_ulps, is_nan(ulps) ? most : ulps);
    }
  }
  add(mismatches, first, error, rounding, max_ulps, true, out);
}

// Adds the squares of the reference, weighted as the result is, to sums[row / sum_rows].
template <class Element>
__device__ __forceinline__ void sum_squares(const float* reference, RowWeights weights, long long rows, long long n,
                                            long long sum_rows, double* sums) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const float weight = weight_of<Element>(weights, row);
    double sum = 0;
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const double value = static_cast<double>(reference[row * n + j]) * weight;
      sum += value * value;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) atomicAdd(&sums[row / sum_rows], sum);
  }
}

// Counts the bytes of a region that differ from `byte`: of guard zones and rows that no kernel may write.
__device__ __forceinline__ void count_changed(const unsigned char* region, unsigned long long bytes, unsigned char byte,
                                              unsigned long long* changed) {
  unsigned long long count = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes;
       i += step)
    count += region[i] != byte;
  for (int half = 16; half > 0; half /= 2) count += __shfl_down_sync(~0u, count, half);
  if (threadIdx.x % 32 == 0 && count) atomicAdd(changed, count);
}

// Counts the elements of d that still have the fill pattern, all bits set (a NaN in every format).
template <class Element>
__device__ __forceinline__ void count_unwritten(const Element* d, unsigned long long count,
                                                unsigned long long* unwritten) {
  unsigned long long found = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    bool all = true;
    if constexpr (sizeof(Element) == 1)
      all = reinterpret_cast<const unsigned char*>(d)[i] == 0xffu;
    else if constexpr (sizeof(Element) == 2)
      all = reinterpret_cast<const unsigned short*>(d)[i] == 0xffffu;
    else
      all = reinterpret_cast<const unsigned*>(d)[i] == 0xffffffffu;
    found += all;
  }
  for (int half = 16; half > 0; half /= 2) found += __shfl_down_sync(~0u, found, half);
  if (threadIdx.x % 32 == 0 && found) atomicAdd(unwritten, found);
}

}  // namespace moetune
