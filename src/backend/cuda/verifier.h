// References of a loaded problem and the comparison of every element with them.
#pragma once
#include <functional>

#include "backend/backend.h"
#include "backend/cuda/operands.h"

namespace moetune {

/// Runs something once on operand set 0; it may throw CandidateFault.
using RunOnce = std::function<void()>;

class Verifier {
 public:
  /// Computes both references with cuBLAS, in fp32 and expert order [owned_rows of D, N], and checks them on sampled
  /// elements against host sums in double. Throws Exit::machine where they disagree.
  Verifier(const Operands& operands, Services& services, Cublas& cublas, const Stream& stream);

  /// Integer inputs bit for bit, then random inputs within tolerance; outputs start as NaN, guards are looked at.
  /// Leaves random values in operand set 0.
  Verdict verify(const RunOnce& run) const;

  /// Runs again and again on random inputs for about `seconds`; each result and its guards must have the bits of the
  /// first.
  Repetition repeat(const RunOnce& run, double seconds) const;

 private:
  void clear_output(Values values) const;
  void make_reference(Values values, DeviceBuffer& reference, Cublas& cublas) const;
  void check_samples(Values values, const DeviceBuffer& reference) const;
  /// How large the results on random inputs are: in all, and root mean squares of those that ulps are measured by.
  void measure_reference();
  /// One run over NaN-filled outputs, or over what is added to; a sentence where anything is wrong. Errors are measured
  /// on random inputs.
  std::string run_and_compare(const RunOnce& run, Values values, ComparisonCounts& counts) const;

  const Operands& operands_;
  Services& services_;
  const Service& service_;  // of D
  cudaStream_t stream_;
  DeviceBuffer integer_reference_, random_reference_, scratch_;
  DeviceBuffer rms_;      // one of all rows, or, where experts sum over K of their own, one an expert
  int64_t rms_rows_ = 1;  // rows of D that share one
  double squares_ = 0;    // sum of the squares of all results
};

}  // namespace moetune
