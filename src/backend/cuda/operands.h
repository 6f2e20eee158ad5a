// The operands of a loaded problem in device memory, in as many sets as cold timing needs.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/cuda/service.h"
#include "kernels/args.h"
#include "workload/problem.h"

namespace moetune {

/// Sets lie one behind the other in each buffer. Y has guard bytes before and after each set.
struct Operands {
  Problem problem;
  int sets = 0;
  int64_t x_stride = 0, w_stride = 0, y_stride = 0;  // bytes from set to set
  DeviceBuffer x, w, y;
  DeviceBuffer m_sizes, gather_indices, weights, counters;
  DeviceBuffer pointers;            // [sets][3][experts]: each expert's X, W and Y
  DeviceBuffer x_sorted, y_sorted;  // expert order, for references and baselines of fused problems
  DeviceBuffer x_gathered;          // the same for kernels that gather first: nothing else reads what they write
  int64_t gathered_offset = 0;      // where their counts begin in `counters`

  Args args(int set) const;
  char* y_of(int set) const;
  const float* weights_or_null() const;
  /// The plain GEMM behind the problem: on X as it is, or on the sorted copies where the problem is fused.
  GroupedGemm gemm(int set) const;
  void fill(const Service& service, Values values, int set, cudaStream_t stream) const;
};

constexpr int64_t kGuardBytes = 4096;

/// Allocates and fills with random values. Rotation covers three times the L2 cache, with at least two sets unless one
/// alone is that large and two don't fit. Throws OutOfMemory with the size before allocating anything.
Operands make_operands(const Problem& problem, const DeviceInfo& device, const Service& service, cudaStream_t stream);

}  // namespace moetune
