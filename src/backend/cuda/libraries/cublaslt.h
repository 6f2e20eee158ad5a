// cuBLASLt, opened at run time: fp8 GEMMs with scales, one an expert, as a baseline.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/libraries/cublas.h"

struct cublasLtContext;

namespace moetune {

/// A GroupedGemm of fp8 operands, and their scales in cuBLASLt's layout (see ScalesForCublasLt).
struct ScaledGemm {
  GroupedGemm gemm;
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
};

/// Where the scales of an expert lie for cuBLASLt (its documentation, "128-element 1D and 128x128 2D block scaling"),
/// in floats. Of A's blocks: [columns of blocks][rows of the expert]; each expert's begin at a multiple of four. Of
/// B's: [rows of blocks][columns of blocks, rounded up to a multiple of four]. Scales of rows lie as they are.
struct ScalesForCublasLt {
  explicit ScalesForCublasLt(const Product& product);
  std::vector<int64_t> a_first;       // [experts + 1]
  int64_t a_columns = 1;              // of blocks along k
  int64_t b_rows = 1, b_columns = 1;  // of an expert's blocks; the columns are rounded up
  int64_t a_step(int64_t rows) const { return (rows + 3) / 4 * 4; }  // from a column of blocks to the next
  int64_t b_first(int64_t expert) const { return expert * b_rows * b_columns; }
};

class CublasLt {
 public:
  static constexpr int64_t kSpareRows = 3;
  explicit CublasLt(cudaStream_t stream);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// One GEMM an expert, in the order of their rows. cuBLASLt multiplies rows of D by fours: up to three rows behind
  /// each expert's are read as if they were its own, and of D written, until those of the next expert are. A and D need
  /// kSpareRows more rows. CandidateFault where cuBLASLt has no kernel for these sizes and scales.
  void loop(const ScaledGemm& scaled);

 private:
  struct Api;
  const Api& api_;
  cudaStream_t stream_;
  cublasLtContext* handle_ = nullptr;
  DeviceBuffer workspace_;
  DeviceBuffer last_rows_;  // of D, of an expert whose rows nothing follows
};

}  // namespace moetune
