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
  /// Computes both references with cuBLAS, in fp32 and expert order, and checks them on sampled elements against host
  /// sums in double. Throws Exit::machine where they disagree.
  Verifier(const Operands& operands, const Service& service, Cublas& cublas, const Stream& stream);

  /// Integer inputs bit for bit, then random inputs within tolerance; outputs start as NaN, guards are looked at.
  /// Leaves random values in operand set 0.
  Verdict verify(const RunOnce& run) const;

  /// Runs again and again on random inputs for about `seconds`; each result and its guards must have the bits of the
  /// first. `words` is the service of fp32, which compares words of 32 bits.
  Repetition repeat(const RunOnce& run, double seconds, const Service& words) const;

 private:
  void clear_output() const;
  void make_reference(Values values, DeviceBuffer& reference, Cublas& cublas) const;
  void check_samples(Values values, const DeviceBuffer& reference) const;
  /// One run over NaN-filled outputs; a sentence where anything is wrong.
  std::string run_and_compare(const RunOnce& run, float rms, const DeviceBuffer& reference,
                              ComparisonCounts& counts) const;

  const Operands& operands_;
  const Service& service_;
  cudaStream_t stream_;
  DeviceBuffer integer_reference_, random_reference_, scratch_;
  double rms_ = 0;
};

}  // namespace moetune
