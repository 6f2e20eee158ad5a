// The service kernels of one dtype: filling, moving, comparing, probing. Compiled like any other unit.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/compiler.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/runtime.h"
#include "workload/problem.h"

namespace moetune {

/// Twin of Comparison in kernels/compare.cuh.
struct ComparisonCounts {
  unsigned long long mismatches = 0;
  unsigned long long first = ~0ull;
  double error = 0;
  double reference = 0;
  unsigned max_ulps_bits = 0;
  unsigned padding = 0;
};

class Service {
 public:
  Service(Dtype dtype, const CompilerOptions& options);

  /// Fills `count` elements of an operand as operand_value says.
  void fill(void* out, int64_t count, Values values, uint64_t seed, int operand, cudaStream_t stream) const;
  /// Rows between expert order and the layer's order; see kernels/operands.cuh.
  void gather(void* out, const void* in, const int* indices, int64_t rows, int64_t width, int64_t top_k,
              cudaStream_t) const;
  void scatter(void* out, const void* in, const int* indices, const float* weights, int64_t rows, int64_t width,
               cudaStream_t) const;
  /// Adds to `counts` on the device what differs; rms > 0 measures errors too.
  void compare(const void* y, const float* reference, const int* indices, const float* weights, int64_t rows, int64_t n,
               bool scattered, float rms, ComparisonCounts* counts, cudaStream_t) const;
  void sum_squares(const float* reference, const int* indices, const float* weights, int64_t rows, int64_t n,
                   ComparisonCounts* counts, cudaStream_t) const;
  void count_changed(const void* region, int64_t bytes, unsigned char byte, unsigned long long* changed,
                     cudaStream_t) const;
  void count_unwritten(const void* y, int64_t elements, unsigned long long* unwritten, cudaStream_t) const;
  /// out: [sms][2] cycles and nanoseconds of each SM.
  void read_clocks(unsigned long long* out, int sms, cudaStream_t) const;
  void read_all(const void* in, int64_t bytes, unsigned* out, cudaStream_t) const;
  void copy_all(const void* in, int64_t bytes, void* out, cudaStream_t) const;
  void nothing(cudaStream_t) const;

 private:
  Dtype dtype_;
  std::shared_ptr<Module> module_;
};

}  // namespace moetune
