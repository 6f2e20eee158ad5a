// The operands of a loaded problem in device memory, in as many sets as cold timing needs.
#pragma once
#include <cstdint>

#include "backend/cuda/libraries/cublaslt.h"
#include "backend/cuda/verify/service.h"
#include "kernels/args.h"
#include "workload/product/product.h"

namespace moetune {

/// An operand in all sets, one behind the other. Results have guard bytes before and after each set.
struct SetBuffer {
  DeviceBuffer memory;
  int64_t stride = 0;  // bytes from set to set; 0 where the product has no such operand
  int64_t guard = 0;   // bytes

  char* of(int set) const { return stride > 0 ? memory.data() + guard + set * stride : nullptr; }
  float* floats(int set) const { return reinterpret_cast<float*>(of(set)); }
};

struct Operands {
  Product product;
  Product plain;  // in expert order: what references and baselines multiply
  Product first;  // what a kernel multiplies before the last pass, where there is one; else the product
  int sets = 0;
  SetBuffer a, b, d;
  SetBuffer a_scales, b_scales, d_scales;  // those of B of type.scales.dtype
  SetBuffer b_zeros;
  SetBuffer b_reordered;  // B with its scales and zero points, where kernels read it so
  // For baselines: scales as cuBLASLt reads them, and where those of each row of A in expert order and of each row of
  // B's blocks go ([rows][2]: the first, the distance to the next). Empty where they lie so already.
  SetBuffer a_lt_scales, b_lt_scales;
  // For packs: scales of A's blocks, MN-major: a column of them after another, each of a multiple of four.
  SetBuffer a_mn_scales;
  DeviceBuffer a_lt_places, b_lt_places, a_mn_places;
  DeviceBuffer m_sizes, gather_indices, weights, counters;
  DeviceBuffer first_rows;              // [experts + 1], for packs
  DeviceBuffer pointers;                // [sets][3][experts]: each expert's A, B and D
  DeviceBuffer a_rows, b_rows, d_rows;  // row maps of operands that are not in place; else empty
  // Operands of `plain` that are moved, for references and baselines; d_sorted holds what the last pass reads.
  DeviceBuffer a_sorted, b_sorted, d_sorted;
  DeviceBuffer gathered;        // the copy of A or B that kernels with gather=first write; nothing else reads it
  int64_t gathered_offset = 0;  // where their counts begin in `counters`

  SetBuffer x, dweights;  // with the weights' gradient or that of gates; X is a result with the latter
  SetBuffer bias, h;      // with a bias; with the gradient of gates, or where H is a result
  DeviceBuffer row_of;    // [slots] for sums over slots: row of expert order, -1 without

  /// The arguments of a candidate's launch.
  Args args(int set) const;
  /// The last pass: from the results or the sums of `first` in d_sorted. With `parts`, a kernel left so many parts of
  /// each row's product with X there instead, and they give the weights' gradient alone.
  void finish(Services& services, int set, cudaStream_t stream, int parts = 0) const;
  /// Rows of d_sorted, weighted by slot unless `slot_weights` is null, added to D of a set by token.
  void add_slots(Services& services, const float* slot_weights, int set, cudaStream_t stream) const;
  /// What becomes of the sums of `plain`, in place and without weights.
  FinishedRows finished_rows(int set) const;
  /// From sums of the first pass to the gradients of gate and up, of a set.
  GateRows gate_rows(const float* sums, int set) const;
  /// Weights of the result's rows, as it is compared.
  RowWeights result_weights() const;
  /// The plain GEMM behind the problem: on operands as they are, or on the sorted copies of those that are moved.
  GroupedGemm gemm(int set) const;
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
  void fill_operand(Services& services, const Operand& operand, Values values, int set, const SetBuffer& buffer,
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
