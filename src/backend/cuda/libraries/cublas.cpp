// The cuBLAS calls. cuBLAS is column-major: what is row-major here is transposed there, and D = A B^T is its D^T = B
// A^T.
#include "backend/cuda/libraries/cublas.h"

#include <cublas_v2.h>
#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cuda/libraries/library.h"
#include "base/error.h"
#include "workload/product/product_rows.h"

namespace moetune {

struct Cublas::Api {
  Library library{"cuBLAS", "libcublas"};
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

// One expert's D^T [n, m] = B [n, k] A^T [k, m], as cuBLAS sees it.
struct ExpertGemm {
  cublasOperation_t b_op, a_op;
  int n, m, k;
  const char *b, *a;
  char* d;
  int b_stride, a_stride, d_stride;  // elements from column to column for cuBLAS, from row to row here
};

int64_t offset_of(const Product& p, const Operand& operand, int64_t expert) {
  return memory_row(p, operand, expert, 0) * operand.columns * size_bytes(operand.type.dtype);
}

ExpertGemm gemm_of(const GroupedGemm& gemm, int64_t expert) {
  const Product& p = gemm.product;
  return {.b_op = is_k_major(p.b) ? CUBLAS_OP_T : CUBLAS_OP_N,
          .a_op = is_k_major(p.a) ? CUBLAS_OP_N : CUBLAS_OP_T,
          .n = static_cast<int>(extent(p, expert, Axis::n)),
          .m = static_cast<int>(extent(p, expert, Axis::m)),
          .k = static_cast<int>(extent(p, expert, Axis::k)),
          .b = gemm.b + offset_of(p, p.b, expert),
          .a = gemm.a + offset_of(p, p.a, expert),
          .d = gemm.d + offset_of(p, p.d, expert),
          .b_stride = static_cast<int>(p.b.columns),
          .a_stride = static_cast<int>(p.a.columns),
          .d_stride = static_cast<int>(p.d.columns)};
}

std::vector<ExpertGemm> gemms_of(const GroupedGemm& gemm) {
  std::vector<ExpertGemm> gemms;
  for (int64_t expert = 0; expert < experts(gemm.product); ++expert) {
    const ExpertGemm one = gemm_of(gemm, expert);
    if (one.m > 0 && one.k > 0) gemms.push_back(one);
  }
  return gemms;
}

}  // namespace

Cublas::Cublas(cudaStream_t stream) : api_(Api::get()), stream_(stream), workspace_(kWorkspaceBytes) {
  api_.require(api_.create(&handle_), "cannot start");
  api_.require(api_.set_stream(handle_, stream), "cannot set the stream");
  api_.require(api_.set_workspace(handle_, workspace_.data(), kWorkspaceBytes), "cannot set the workspace");
}

Cublas::~Cublas() {
  if (handle_) api_.destroy(handle_);
}

std::string Cublas::version() const {
  int major = 0, minor = 0, patch = 0;
  api_.get_property(MAJOR_VERSION, &major);
  api_.get_property(MINOR_VERSION, &minor);
  api_.get_property(PATCH_LEVEL, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

void Cublas::set_math_mode(const Product& product, bool exact) {
  const bool fp32_sums = exact || product.ragged == Axis::k;
  api_.require(
      api_.set_math_mode(handle_, fp32_sums ? CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION : CUBLAS_DEFAULT_MATH),
      "cannot set the math mode");
}

void Cublas::clear_empty_sums(const GroupedGemm& gemm) {
  const Product& p = gemm.product;
  if (p.ragged != Axis::k || p.accumulates) return;
  const int64_t matrix_bytes = p.m * p.d.columns * size_bytes(p.d.type.dtype);
  for (int64_t expert = 0; expert < experts(p); ++expert)
    if (extent(p, expert, Axis::k) == 0)
      moetune::require(
          cudaMemsetAsync(gemm.d + offset_of(p, p.d, expert), 0, static_cast<size_t>(matrix_bytes), stream_),
          "cannot clear the result");
}

void Cublas::loop(const GroupedGemm& gemm, bool exact) {
  const Product& p = gemm.product;
  set_math_mode(p, exact);
  clear_empty_sums(gemm);
  const float one = 1, before = p.accumulates ? 1 : 0;  // times D before
  for (const ExpertGemm& g : gemms_of(gemm))
    api_.require(api_.gemm(handle_, g.b_op, g.a_op, g.n, g.m, g.k, &one, g.b, data_type(p.b.type.dtype), g.b_stride,
                           g.a, data_type(p.a.type.dtype), g.a_stride, &before, g.d, data_type(p.d.type.dtype),
                           g.d_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "gemm");
}

cudaDataType_t data_type(Dtype dtype) {
  constexpr cudaDataType_t kTypes[] = {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_8F_E4M3};
  if (static_cast<size_t>(dtype) >= std::size(kTypes)) throw Error(Exit::bug, "cuBLAS multiplies no integers here");
  return kTypes[static_cast<size_t>(dtype)];
}

bool has_grouped_gemm(const Product& product) { return is_k_major(product.a) && is_k_major(product.b); }

DeviceBuffer Cublas::grouped_pointers(const GroupedGemm& gemm) {
  const std::vector<ExpertGemm> gemms = gemms_of(gemm);
  std::vector<const void*> pointers;
  for (const ExpertGemm& one : gemms) pointers.push_back(one.b);
  for (const ExpertGemm& one : gemms) pointers.push_back(one.a);
  for (const ExpertGemm& one : gemms) pointers.push_back(one.d);
  DeviceBuffer buffer(static_cast<int64_t>(pointers.size() * sizeof(void*)));
  copy_to_device(buffer.data(), pointers.data(), pointers.size() * sizeof(void*));
  return buffer;
}

void Cublas::grouped(const GroupedGemm& gemm, const DeviceBuffer& pointers) {
  const Product& p = gemm.product;
  clear_empty_sums(gemm);
  std::vector<cublasOperation_t> b_ops, a_ops;
  std::vector<int> n, m, k, b_strides, a_strides, d_strides;
  for (const ExpertGemm& one : gemms_of(gemm)) {
    b_ops.push_back(one.b_op), a_ops.push_back(one.a_op);
    n.push_back(one.n), m.push_back(one.m), k.push_back(one.k);
    b_strides.push_back(one.b_stride), a_strides.push_back(one.a_stride), d_strides.push_back(one.d_stride);
  }
  const size_t groups = n.size();
  if (groups == 0) return;
  const std::vector<int> size(groups, 1);
  const std::vector<float> one(groups, 1), zero(groups, 0);
  const auto* b = pointers.as<const void*>();
  set_math_mode(p, false);
  api_.require(
      api_.grouped(handle_, b_ops.data(), a_ops.data(), n.data(), m.data(), k.data(), one.data(), b,
                   data_type(p.b.type.dtype), b_strides.data(), b + groups, data_type(p.a.type.dtype), a_strides.data(),
                   zero.data(), const_cast<void**>(b + 2 * groups), data_type(p.d.type.dtype), d_strides.data(),
                   static_cast<int>(groups), size.data(), CUBLAS_COMPUTE_32F),
      "grouped gemm");
}

void Cublas::dense(const char* a, const char* b, char* c, int64_t size) {
  const Operand square{.rows = size, .columns = size};
  Product product{.a = square, .b = square, .d = square, .n = size, .k = size};
  product.b.row_axis = Axis::n;
  product.d.column_axis = Axis::n;
  product.m_sizes = {static_cast<int32_t>(size)};
  product.first_rows = {0, size};
  loop({.product = product, .a = a, .b = b, .d = c}, false);
}

}  // namespace moetune
