// The cuBLASLt calls. Column-major as in cublas.cpp: its A is our B.
#include "backend/cuda/libraries/cublaslt.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/cuda/libraries/library.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {

struct CublasLt::Api {
  Library library{"cuBLASLt", "libcublasLt"};
#define MOETUNE_SYMBOL(name, exported) decltype(&::exported) name = library.symbol(#exported, &::exported)
  MOETUNE_SYMBOL(create, cublasLtCreate);
  MOETUNE_SYMBOL(destroy, cublasLtDestroy);
  MOETUNE_SYMBOL(make_matmul, cublasLtMatmulDescCreate);
  MOETUNE_SYMBOL(free_matmul, cublasLtMatmulDescDestroy);
  MOETUNE_SYMBOL(set_matmul, cublasLtMatmulDescSetAttribute);
  MOETUNE_SYMBOL(make_layout, cublasLtMatrixLayoutCreate);
  MOETUNE_SYMBOL(free_layout, cublasLtMatrixLayoutDestroy);
  MOETUNE_SYMBOL(make_preference, cublasLtMatmulPreferenceCreate);
  MOETUNE_SYMBOL(free_preference, cublasLtMatmulPreferenceDestroy);
  MOETUNE_SYMBOL(set_preference, cublasLtMatmulPreferenceSetAttribute);
  MOETUNE_SYMBOL(choose, cublasLtMatmulAlgoGetHeuristic);
  MOETUNE_SYMBOL(multiply, cublasLtMatmul);
#undef MOETUNE_SYMBOL
  static const Api& get() {
    static const Api loaded;
    return loaded;
  }
};

namespace {

constexpr int64_t kLtWorkspaceBytes = int64_t{32} << 20;

void require_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CandidateFault(Status::illegal, fmt::format("cuBLASLt: {}: status {}", what, static_cast<int>(status)));
}

// A description, freed at the end of its scope.
template <class T, class Free>
struct Owned {
  T value = nullptr;
  Free* free;
  explicit Owned(Free* function) : free(function) {}
  ~Owned() {
    if (value) free(value);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};

int64_t blocks_of(int64_t size) { return (size + 127) / 128; }

}  // namespace

ScalesForCublasLt::ScalesForCublasLt(const Product& product) {
  const bool blocks = product.a.type.scales.kind == ScaleKind::block;
  if (blocks) a_columns = blocks_of(product.k), b_rows = blocks_of(product.n), b_columns = (a_columns + 3) / 4 * 4;
  int64_t first = 0;
  for (const int64_t rows : product.m_sizes) {
    a_first.push_back(first);
    first += blocks ? a_step(rows) * a_columns : rows;
  }
  a_first.push_back(first);
}

CublasLt::CublasLt(cudaStream_t stream) : api_(Api::get()), stream_(stream), workspace_(kLtWorkspaceBytes) {
  require_lt(api_.create(&handle_), "cannot start");
}

CublasLt::~CublasLt() {
  if (handle_) api_.destroy(handle_);
}

void CublasLt::loop(const ScaledGemm& scaled) {
  const Product& p = scaled.gemm.product;
  const ScaleKind kind = p.a.type.scales.kind;
  const ScalesForCublasLt places(p);
  const auto mode = [&](bool of_a) -> int32_t {  // a cublasLtMatmulMatrixScale_t: CUDA 12.8 lacks the names
    if (kind == ScaleKind::tensor) return 0;     // SCALAR_32F
    if (kind == ScaleKind::channel) return 3;    // OUTER_VEC_32F
    return of_a ? 4 : 5;                         // VEC128_32F, BLK128x128_32F
  };
  const ScaleStrides a_strides = scale_strides(p, p.a), b_strides = scale_strides(p, p.b);
  Owned<cublasLtMatmulPreference_t, decltype(cublasLtMatmulPreferenceDestroy)> preference(api_.free_preference);
  require_lt(api_.make_preference(&preference.value), "preference");
  const auto workspace = static_cast<uint64_t>(kLtWorkspaceBytes);
  require_lt(
      api_.set_preference(preference.value, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
      "preference");
  const int64_t row_bytes_of_d = row_bytes(p.d);
  for (int64_t expert = 0; expert < experts(p); ++expert) {
    const int64_t own = extent(p, expert, Axis::m), first = first_row(p, p.d, expert), m = (own + 3) / 4 * 4;
    if (own == 0) continue;
    Owned<cublasLtMatmulDesc_t, decltype(cublasLtMatmulDescDestroy)> matmul(api_.free_matmul);
    require_lt(api_.make_matmul(&matmul.value, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      require_lt(api_.set_matmul(matmul.value, attribute, &value, sizeof value), "attribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.sums == Sums::fast));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(false));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(true));
    const bool blocks = kind == ScaleKind::block;
    const float* b_scales = scaled.b_scales + (blocks ? places.b_first(expert) : expert * b_strides.expert);
    const float* a_scales =
        scaled.a_scales + (blocks ? places.a_first[static_cast<size_t>(expert)] : first * a_strides.row);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_scales);
    Owned<cublasLtMatrixLayout_t, decltype(cublasLtMatrixLayoutDestroy)> b(api_.free_layout), a(api_.free_layout),
        d(api_.free_layout);
    const auto rows = static_cast<uint64_t>(m), k = static_cast<uint64_t>(p.k), n = static_cast<uint64_t>(p.n);
    require_lt(api_.make_layout(&b.value, data_type(p.b.type.dtype), k, n, p.k), "layout");
    require_lt(api_.make_layout(&a.value, data_type(p.a.type.dtype), k, rows, p.k), "layout");
    require_lt(api_.make_layout(&d.value, data_type(p.d.type.dtype), n, rows, p.n), "layout");
    cublasLtMatmulHeuristicResult_t chosen = {};
    int count = 0;
    if (api_.choose(handle_, matmul.value, b.value, a.value, d.value, d.value, preference.value, 1, &chosen, &count) !=
            CUBLAS_STATUS_SUCCESS ||
        count == 0)
      throw CandidateFault(
          Status::illegal,
          fmt::format("cuBLASLt has no kernel for {} rows, n {}, k {} and scales of {}", m, p.n, p.k, name(kind)));
    const float one = 1, zero = 0;
    char* target = scaled.gemm.d + first * row_bytes_of_d;
    char* const last = first + m > routed_rows(p) ? target : nullptr;
    if (last && last_rows_.size() < m * row_bytes_of_d) last_rows_ = DeviceBuffer(m * row_bytes_of_d);
    if (last) target = last_rows_.data();
    require_lt(api_.multiply(handle_, matmul.value, &one, scaled.gemm.b + expert * p.n * p.k, b.value,
                             scaled.gemm.a + first * p.k, a.value, &zero, target, d.value, target, d.value,
                             &chosen.algo, workspace_.data(), static_cast<size_t>(kLtWorkspaceBytes), stream_),
               "matmul");
    if (last)
      require(
          cudaMemcpyAsync(last, target, static_cast<size_t>(own * row_bytes_of_d), cudaMemcpyDeviceToDevice, stream_),
          "cannot copy the last rows");
  }
}

}  // namespace moetune
