// cuBLAS, opened at run time: the reference and the baselines are its GEMMs, one expert each.
#pragma once
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>
#include <string>

#include "backend/cuda/libraries/runtime.h"
#include "workload/product/product.h"

struct cublasContext;

namespace moetune {

/// A product whose operands all lie in place, unweighted; and where they lie.
struct GroupedGemm {
  const Product& product;
  const char* a = nullptr;
  const char* b = nullptr;
  char* d = nullptr;
};

/// Of bf16, fp16, fp32 and fp8.
cudaDataType data_type(Dtype dtype);

/// Whether cublasGemmGroupedBatchedEx multiplies such operands: those of the forward product, in which K is contiguous.
bool has_grouped_gemm(const Product& product);

class Cublas {
 public:
  explicit Cublas(cudaStream_t stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  std::string version() const;
  /// One GEMM an expert, none for experts without rows of D; zeros where K is 0, or D as it is where they accumulate.
  /// `exact` forbids sums in less than fp32; so does a ragged K, whose sums may be long.
  void loop(const GroupedGemm& gemm, bool exact);
  /// One cublasGemmGroupedBatchedEx, for products that have it. `pointers` must contain 3 device pointers an expert and
  /// stay alive.
  void grouped(const GroupedGemm& gemm, const DeviceBuffer& pointers);
  /// Copies the pointer arrays that grouped() reads.
  static DeviceBuffer grouped_pointers(const GroupedGemm& gemm);
  /// C[size, size] = A B^T on bf16 operands: for measuring ceilings.
  void dense(const char* a, const char* b, char* c, int64_t size);

 private:
  void set_math_mode(const Product& product, bool exact);
  void clear_empty_sums(const GroupedGemm& gemm);

  struct Api;
  const Api& api_;
  cudaStream_t stream_;
  cublasContext* handle_ = nullptr;
  DeviceBuffer workspace_;
};

}  // namespace moetune
