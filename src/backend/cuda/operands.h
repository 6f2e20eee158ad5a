// The operands of a loaded problem in device memory, in as many sets as cold timing needs.
#pragma once
#include <cstdint>

#include "backend/cuda/libraries/cublaslt.h"
#include "backend/cuda/verify/service.h"
#include "kernels/args.h"
#include "workload/product.h"

namespace moetune {

/// Sets lie one behind the other in each buffer. D has guard bytes before and after each set.
struct Operands {
  Product product;
  Product plain;  // in expert order: what references and baselines multiply
  Product first;  // what a kernel multiplies before the last pass, where there is one; else the product
  int sets = 0;
  int64_t a_stride = 0, b_stride = 0, d_stride = 0;  // bytes from set to set
  DeviceBuffer a, b, d;
  int64_t a_scale_stride = 0, b_scale_stride = 0;  // the same of scales
  DeviceBuffer a_scales, b_scales;
  int64_t d_scale_stride = 0;  // bytes; of a quantised D, whose scales have guards as D has
  DeviceBuffer d_scales;
  int64_t b_zero_stride = 0;  // the same of zero points
  DeviceBuffer b_zeros;
  // For baselines: scales as cuBLASLt reads them, by sets, and where those of each row of A in expert order and of each
  // row of B's blocks go ([rows][2]: the first, the distance to the next). Empty where they lie so already.
  DeviceBuffer a_lt_scales, b_lt_scales, a_lt_places, b_lt_places;
  int64_t a_lt_stride = 0, b_lt_stride = 0;
  // For packs: scales of A's blocks by sets, MN-major: a column of them after another, each of a multiple of four.
  DeviceBuffer a_mn_scales, a_mn_places;
  int64_t a_mn_stride = 0;
  DeviceBuffer m_sizes, gather_indices, weights, counters;
  DeviceBuffer first_rows;              // [experts + 1], for packs
  DeviceBuffer pointers;                // [sets][3][experts]: each expert's A, B and D
  DeviceBuffer a_rows, b_rows, d_rows;  // row maps of operands that are not in place; else empty
  // Operands of `plain` that are moved, for references and baselines; d_sorted holds the sums before the last pass.
  DeviceBuffer a_sorted, b_sorted, d_sorted;
  DeviceBuffer gathered;        // the copy of A or B that kernels with gather=first write; nothing else reads it
  int64_t gathered_offset = 0;  // where their counts begin in `counters`

  // Where the product has the weights' gradient or that of gates: X by sets, which is a result with the latter; results
  // have guards.
  DeviceBuffer x, dweights;
  // Where it has a bias, or the gradient of gates: by sets.
  DeviceBuffer bias, h;
  int64_t bias_stride = 0, h_stride = 0;
  int64_t x_stride = 0, dweights_stride = 0;
  DeviceBuffer row_of;  // [slots] for sums over slots: row of expert order, -1 without

  /// The arguments of a candidate's launch.
  Args args(int set) const;
  char* d_of(int set) const;
  float* d_scales_of(int set) const;  // null where D is not quantised
  float* dweights_of(int set) const;
  char* x_of(int set) const;
  /// The last pass: from sums, which lie as D of `first`, to the results.
  void finish(Services& services, const float* sums, int set, cudaStream_t stream) const;
  /// What becomes of the sums of `plain`, in place and without weights.
  FinishedRows finished_rows(int set) const;
  /// From sums of the first pass to the gradients of gate and up, of a set.
  GateRows gate_rows(const float* sums, int set) const;
  /// Weights of the result's rows, as it is compared.
  RowWeights result_weights() const;
  /// The plain GEMM behind the problem: on operands as they are, or on the sorted copies of those that are moved.
  GroupedGemm gemm(int set) const;
  /// Scales of A and B of a set; null without.
  const float* a_scales_of(int set) const;
  const float* b_scales_of(int set) const;  // of type.scales.dtype
  const char* b_zeros_of(int set) const;
  /// The same GEMM of operands with scales.
  ScaledGemm scaled_gemm(int set) const;
  /// Copies inputs that are moved to their sorted copies, and the GEMM's result to D.
  void sort_inputs(Services& services, int set, cudaStream_t stream) const;
  void unsort_result(Services& services, int set, cudaStream_t stream) const;
  /// Fills the inputs of a set, and the weights.
  void fill(Services& services, Values values, int set, cudaStream_t stream) const;
  /// Where the product accumulates: fills D of a set with what is added to.
  void fill_before(Services& services, Values values, int set, cudaStream_t stream) const;

 private:
  void fill_operand(Services& services, const Operand& operand, Values values, int set, char* memory,
                    cudaStream_t stream) const;
};

constexpr int64_t kGuardBytes = 4096;

/// Allocates and fills with random values. Rotation covers three times the L2 cache, with at least two sets unless one
/// alone is that large and two don't fit. Throws OutOfMemory with the size before allocating anything. With `before`,
/// which feeds() it and outlives it, there are as many sets, and A, with its scales, is the D
/// of `before`.
Operands make_operands(Product product, const DeviceInfo& device, Services& services, cudaStream_t stream,
                       const Operands* before = nullptr);

}  // namespace moetune
