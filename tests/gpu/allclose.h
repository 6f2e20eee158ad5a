// The torch.allclose of Unsloth's tests, as a kernel that counts. That it compiles is tested in
// backend/cuda/compile_test.cpp, for machines without a GPU.
#pragma once
#include "workload/shape.h"

namespace moetune {

// Elements outside |got - want| <= absolute + relative * |want|, and those of them that are more than an ulp of the
// element type off; `want` is the rounded reference. Results are unweighted.
inline constexpr const char* kAllclose = R"(#include "service/compare.cuh"

using Element = moetune::bf16;

extern "C" __global__ void allclose(const Element* d, const float* reference, const int* to, long long rows, long long n,
                                    float absolute, float relative, unsigned long long* counts) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x)
    for (long long j = threadIdx.x; j < n; j += blockDim.x) {
      const float want = moetune::to_float(moetune::round_to<Element>(reference[row * n + j]));
      const float got = moetune::to_float(d[(to ? to[row] : row) * n + j]);
      const float difference = fabsf(got - want);
      if (difference <= absolute + relative * fabsf(want)) continue;
      atomicAdd(&counts[0], 1ull);
      const int exponent = static_cast<int>(__float_as_uint(fabsf(want)) >> 23) - 7;
      if (!(difference <= __uint_as_float(static_cast<unsigned>(max(1, exponent)) << 23))) atomicAdd(&counts[1], 1ull);
    }
}
)";

// Unsloth's tolerance in bf16, absolute and relative. Its X and W are randn / 10, its dY is randn. Ours all have the
// standard deviation 1: results are larger by the factors that theirs lack, and so is the absolute part.
inline constexpr float kTolerance = 1e-3F;
inline float absolute_tolerance(Op op) { return kTolerance * (op == Op::fwd ? 100.0F : 10.0F); }

}  // namespace moetune
