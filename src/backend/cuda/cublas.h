// cuBLAS, opened at run time: the reference and the baselines are its GEMMs, one expert each.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"
#include "workload/dtype.h"

namespace moetune {

/// Pointers and sizes of Y_e = X_e W_e^T for all experts; rows of X and Y in expert order.
struct GroupedGemm {
  const char* x;  // [rows, k]
  const char* w;  // [experts, n, k]
  char* y;        // [rows, n]
  const std::vector<int32_t>* m_sizes;
  int64_t n, k;
  Dtype dtype;         // of x and w
  Dtype result_dtype;  // of y: the same, or fp32
};

class Cublas {
 public:
  explicit Cublas(cudaStream_t stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  std::string version() const;
  /// One GEMM an expert, none for empty ones. `exact` forbids sums in less than fp32.
  void loop(const GroupedGemm& gemm, bool exact);
  /// One cublasGemmGroupedBatchedEx. `pointers` must hold 3 device pointers an expert and stay alive.
  void grouped(const GroupedGemm& gemm, const DeviceBuffer& pointers);
  /// Copies the pointer arrays that grouped() reads.
  static DeviceBuffer grouped_pointers(const GroupedGemm& gemm);
  /// C[size, size] = A B^T on bf16 operands: for measuring ceilings.
  void dense(const char* a, const char* b, char* c, int64_t size);

 private:
  struct Api;
  const Api& api_;
  void* handle_ = nullptr;
  DeviceBuffer workspace_;
};

}  // namespace moetune
