// The cuBLAS calls. cuBLAS is column-major: a row-major Y = X W^T is its Y^T = W X^T.
#include "backend/cuda/cublas.h"

#include <cublas_v2.h>
#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cuda/library.h"
#include "base/error.h"

namespace moetune {

struct Cublas::Api {
  Library library{"cuBLAS", {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}};
#define MOETUNE_SYMBOL(name, exported) decltype(&::exported) name = library.symbol(#exported, &::exported)
  MOETUNE_SYMBOL(create, cublasCreate_v2);
  MOETUNE_SYMBOL(destroy, cublasDestroy_v2);
  MOETUNE_SYMBOL(set_stream, cublasSetStream_v2);
  MOETUNE_SYMBOL(set_workspace, cublasSetWorkspace_v2);
  MOETUNE_SYMBOL(set_math_mode, cublasSetMathMode);
  MOETUNE_SYMBOL(get_property, cublasGetProperty);
  MOETUNE_SYMBOL(status_text, cublasGetStatusString);
  MOETUNE_SYMBOL(grouped, cublasGemmGroupedBatchedEx);
#undef MOETUNE_SYMBOL
  // The header overloads this one for C++; the library exports the form with a compute type.
  using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  GemmEx* gemm = library.symbol("cublasGemmEx", static_cast<GemmEx*>(nullptr));
  void require(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw machine_error(fmt::format("cuBLAS: {}: {}", what, status_text(status)));
  }
  static const Api& get() {
    static const Api loaded;
    return loaded;
  }
};

namespace {

// What NVIDIA recommends for Hopper (cuBLAS documentation, cublasSetWorkspace), so that captured calls allocate
// nothing.
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

cudaDataType_t data_type(Dtype dtype) {
  return dtype == Dtype::bf16 ? CUDA_R_16BF : dtype == Dtype::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasHandle_t as_handle(void* handle) { return static_cast<cublasHandle_t>(handle); }

}  // namespace

Cublas::Cublas(cudaStream_t stream) : api_(Api::get()), workspace_(kWorkspaceBytes) {
  cublasHandle_t handle = nullptr;
  api_.require(api_.create(&handle), "cannot start");
  handle_ = handle;
  api_.require(api_.set_stream(handle, stream), "cannot set the stream");
  api_.require(api_.set_workspace(handle, workspace_.data(), kWorkspaceBytes), "cannot set the workspace");
}

Cublas::~Cublas() {
  if (handle_) api_.destroy(as_handle(handle_));
}

std::string Cublas::version() const {
  int major = 0, minor = 0, patch = 0;
  api_.get_property(MAJOR_VERSION, &major);
  api_.get_property(MINOR_VERSION, &minor);
  api_.get_property(PATCH_LEVEL, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

void Cublas::loop(const GroupedGemm& gemm, bool exact) {
  const cublasHandle_t handle = as_handle(handle_);
  api_.require(
      api_.set_math_mode(handle, exact ? CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION : CUBLAS_DEFAULT_MATH),
      "cannot set the math mode");
  const float one = 1, zero = 0;
  const int n = static_cast<int>(gemm.n), k = static_cast<int>(gemm.k);
  int64_t row = 0;
  for (size_t expert = 0; expert < gemm.m_sizes->size(); ++expert) {
    const int m = (*gemm.m_sizes)[expert];
    if (m == 0) continue;
    const char* w = gemm.w + static_cast<int64_t>(expert) * gemm.n * gemm.k * size_bytes(gemm.dtype);
    const char* x = gemm.x + row * gemm.k * size_bytes(gemm.dtype);
    char* y = gemm.y + row * gemm.n * size_bytes(gemm.result_dtype);
    api_.require(api_.gemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, w, data_type(gemm.dtype), k, x,
                           data_type(gemm.dtype), k, &zero, y, data_type(gemm.result_dtype), n, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT),
                 "gemm");
    row += m;
  }
}

DeviceBuffer Cublas::grouped_pointers(const GroupedGemm& gemm) {
  std::vector<const void*> w, x, y;
  int64_t row = 0;
  for (size_t expert = 0; expert < gemm.m_sizes->size(); ++expert) {
    const int m = (*gemm.m_sizes)[expert];
    if (m == 0) continue;
    w.push_back(gemm.w + static_cast<int64_t>(expert) * gemm.n * gemm.k * size_bytes(gemm.dtype));
    x.push_back(gemm.x + row * gemm.k * size_bytes(gemm.dtype));
    y.push_back(gemm.y + row * gemm.n * size_bytes(gemm.result_dtype));
    row += m;
  }
  std::vector<const void*> all = w;
  all.insert(all.end(), x.begin(), x.end());
  all.insert(all.end(), y.begin(), y.end());
  DeviceBuffer buffer(static_cast<int64_t>(all.size() * sizeof(void*)));
  require(cudaMemcpy(buffer.data(), all.data(), all.size() * sizeof(void*), cudaMemcpyHostToDevice),
          "cannot copy pointers");
  return buffer;
}

void Cublas::grouped(const GroupedGemm& gemm, const DeviceBuffer& pointers) {
  std::vector<int> m, n, k, size;
  for (const int rows : *gemm.m_sizes) {
    if (rows == 0) continue;
    m.push_back(static_cast<int>(gemm.n));
    n.push_back(rows);
    k.push_back(static_cast<int>(gemm.k));
    size.push_back(1);
  }
  const size_t groups = m.size();
  if (groups == 0) return;
  const std::vector<cublasOperation_t> transposed(groups, CUBLAS_OP_T), plain(groups, CUBLAS_OP_N);
  const std::vector<float> one(groups, 1), zero(groups, 0);
  const auto* w = pointers.as<const void*>();
  api_.require(api_.set_math_mode(as_handle(handle_), CUBLAS_DEFAULT_MATH), "cannot set the math mode");
  api_.require(api_.grouped(as_handle(handle_), transposed.data(), plain.data(), m.data(), n.data(), k.data(),
                            one.data(), w, data_type(gemm.dtype), k.data(), w + groups, data_type(gemm.dtype), k.data(),
                            zero.data(), const_cast<void**>(w + 2 * groups), data_type(gemm.result_dtype), m.data(),
                            static_cast<int>(groups), size.data(), CUBLAS_COMPUTE_32F),
               "grouped gemm");
}

void Cublas::dense(const char* a, const char* b, char* c, int64_t size) {
  const std::vector<int32_t> rows = {static_cast<int32_t>(size)};
  loop({.x = a,
        .w = b,
        .y = c,
        .m_sizes = &rows,
        .n = size,
        .k = size,
        .dtype = Dtype::bf16,
        .result_dtype = Dtype::bf16},
       false);
}

}  // namespace moetune
