// References of a loaded problem and the comparison of every element with them.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/operands.h"
#include "workload/product/product.h"

namespace moetune {

/// Runs something once on operand set 0; it may throw CandidateFault.
using RunOnce = std::function<void()>;

/// Each compares sampled elements of references on the device with sums in double: equal for integer inputs, within
/// 1e-4 of the root sum of squares of the terms for random ones. Exit::machine where one differs. `sums` are those
/// before a last pass: fp32 [owned_rows of D, N]; `result` is fp32 [tokens, N], the sums of a token's slots; `dweights`
/// are fp32 [slots], the row dots of sums and X, which a gate gradient makes from H. Of check_finished `result` has D's
/// rows, in expert order, with bias and activation, and `h`, if there is one, the sums with bias; of check_scales it is
/// what these are made from. check_gate_gradient looks at whole rows: all where these are few.
void check_sums(const Product& product, Values values, const float* sums);
void check_slot_sums(const Product& product, Values values, const float* sums, const float* result);
void check_finished(const Product& product, Values values, const float* sums, const float* result, const float* h);
void check_scales(const Product& product, const float* result, const float* scales);
void check_gate_gradient(const Product& product, Values values, const float* sums, const float* dh, const float* x);
void check_dweights(const Product& product, Values values, const float* sums, const float* dweights);

class Verifier {
 public:
  /// Computes both references with cuBLAS, in fp32 and in the order of result_rows, and checks them on sampled elements
  /// against host sums in double. Throws Exit::machine where they disagree.
  Verifier(const Operands& operands, Services& services, Cublas& cublas, const Stream& stream);

  /// Integer inputs bit for bit, then random inputs within tolerance; outputs start as NaN, guards are checked. Leaves
  /// random values in operand set 0. A contender that `rounds_sums` to 16 bits before more is done with them may be
  /// ulps off on integers too.
  /// `weighting` is how the contender applies weights, where that differs from the product.
  Verdict verify(const RunOnce& run, bool rounds_sums = false, std::optional<Weighting> weighting = {}) const;

  /// Runs again and again on random inputs for about `seconds`; each result and its guards must have the bits of the
  /// first.
  Repetition repeat(const RunOnce& run, double seconds) const;

 private:
  /// One of the matrices that a launch writes, and what it should be.
  struct Result {
    Operand operand;
    const Service& service;  // of its dtype
    const SetBuffer& buffer;
    const int* row_map = nullptr;  // of its rows in memory, null where references lie like them
    RowWeights weights = {};
    const float* scales = nullptr;           // of a quantised result
    int64_t rows = 0;                        // of the references
    int64_t terms = 0;                       // the most products that an element sums
    DeviceBuffer integer = {}, random = {};  // references
    DeviceBuffer rms = {};  // one of all rows, or, where experts sum over K of their own, one an expert
    int64_t rms_rows = 1;   // rows that share one
    double squares = 0;     // sum of the squares of all results on random inputs

    const DeviceBuffer& reference(Values values) const { return values == Values::integer ? integer : random; }
  };
  Result result_of(const Operand& operand, const SetBuffer& buffer) const;

  void wait() const;
  void clear_output(Values values) const;
  /// Sums of operands with scales: each expert's are dequantised and multiplied in fp32.
  void multiply_dequantised(float* sums, Cublas& cublas) const;
  void make_references(Values values, Cublas& cublas) const;
  /// How large the results on random inputs are: in all, and root mean squares of those that ulps are measured by.
  void measure_reference(Result& result) const;
  /// One run over NaN-filled outputs, or over what is added to; a sentence where anything is wrong. Errors are measured
  /// on random inputs. `counts` has one for each result.
  std::string run_and_compare(const RunOnce& run, Values values, Weighting weighting, bool rounds_sums,
                              std::vector<ComparisonCounts>& counts) const;
  std::string compare(const Result& result, Values values, Weighting weighting, bool rounds_sums,
                      ComparisonCounts& counts) const;

  const Operands& operands_;
  Services& services_;
  cudaStream_t stream_;
  DeviceBuffer scratch_;
  std::vector<Result> results_;  // D, and its scales, X and dweights where the product has them
};

}  // namespace moetune
