// Encoding tensor maps by the driver, whose entry point the runtime finds.
#include "backend/cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/runtime.h"

namespace moetune {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
constexpr unsigned kBoxColumns = 64;

decltype(&cuTensorMapEncodeTiled) find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceCuda, cudaEnableDefault, &found),
          "cannot find cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess)
    throw CandidateFault(Status::launch_error, "this driver has no tensor maps: it must be of CUDA 12 or newer");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// A map of 16-bit elements in boxes of kBoxColumns x box_rows: sizes and, but for the first, bytes from one to the next
// of each dimension, columns first.
TensorMap encode(const void* base, Dtype dtype, const std::vector<cuuint64_t>& size,
                 const std::vector<cuuint64_t>& stride, int box_rows, CUtensorMapL2promotion promotion,
                 std::string_view what) {
  static const auto encoder = find_encoder();
  std::vector<cuuint32_t> box(size.size(), 1);
  box[0] = kBoxColumns, box[1] = static_cast<cuuint32_t>(box_rows);
  const std::vector<cuuint32_t> every(size.size(), 1);
  CUtensorMap map;
  const CUresult result =
      encoder(&map, dtype == Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
              static_cast<cuuint32_t>(size.size()), const_cast<void*>(base), size.data(), stride.data(), box.data(),
              every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CandidateFault(Status::launch_error,
                         fmt::format("no tensor map of {} [{}] in boxes of {} rows: error {}", what,
                                     fmt::join(size, ", "), box_rows, static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

// A row-major matrix. One without rows, of which nothing is read, is told as one row: maps of nothing there are none.
TensorMap encode_matrix(const void* base, const Operand& operand, int64_t rows, int box_rows,
                        CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
  return encode(base, operand.dtype,
                {static_cast<cuuint64_t>(operand.columns), static_cast<cuuint64_t>(std::max<int64_t>(1, rows))},
                {static_cast<cuuint64_t>(operand.columns * size_bytes(operand.dtype))}, box_rows, promotion,
                name(operand.matrix));
}

// Matrices of so many rows, one after another.
TensorMap encode_matrices(const void* base, const Operand& operand, int64_t matrices, int64_t rows, int box_rows) {
  const auto row_bytes = static_cast<cuuint64_t>(operand.columns * size_bytes(operand.dtype));
  const auto count = static_cast<cuuint64_t>(rows);
  return encode(base, operand.dtype,
                {static_cast<cuuint64_t>(operand.columns), count, static_cast<cuuint64_t>(matrices)},
                {row_bytes, row_bytes * count}, box_rows, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, name(operand.matrix));
}

// Rows that go along k and end where an expert's do: see kRaggedRows. Addresses are counted modulo 2^64, and the last
// dimension takes back what the others are ahead: kRaggedRows * 2^34 = 2^64.
TensorMap encode_ragged(const void* base, const Operand& operand, int box_rows) {
  constexpr cuuint64_t kAnyRow = 0x7fff0000;
  const auto row_bytes = static_cast<cuuint64_t>(operand.columns * size_bytes(operand.dtype));
  return encode(base, operand.dtype, {static_cast<cuuint64_t>(operand.columns), kRaggedRows, kAnyRow, kAnyRow},
                {row_bytes, row_bytes, (cuuint64_t{1} << 34) - row_bytes}, box_rows, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                name(operand.matrix));
}

}  // namespace

// A miss of an input brings 128 bytes into L2; results are stored, for which this means nothing.
void encode_maps(Args& args, const LaunchPlan& plan, const Product& product) {
  const Operand &a = product.a, &b = product.b, &d = product.d;
  const bool gathers_b = plan.gathers_first && b.order != RowOrder::in_place;
  const bool gathers_a = plan.gathers_first && !gathers_b;
  const void* a_base = gathers_a ? args.gathered_x : args.x;
  const int64_t a_rows = gathers_a ? owned_rows(product, a) : a.rows;
  const int64_t b_rows = extent(product, 0, b.row_axis);
  if (plan.x_box > 0)
    args.x_map = is_k_major(a) ? encode_matrix(a_base, a, a_rows, plan.x_box) : encode_ragged(a_base, a, plan.x_box);
  if (plan.x_rest > 0) args.x_rest_map = encode_matrix(a_base, a, a_rows, plan.x_rest);
  if (plan.w_box > 0) {
    if (is_k_major(b))
      args.w_map = encode_matrix(args.w, b, plan.maps > 0 ? b_rows : b.rows, plan.w_box);
    else if (is_ragged(product, b))
      args.w_map = encode_ragged(gathers_b ? args.gathered_x : args.w, b, plan.w_box);
    else  // rows along k end where the expert's do: what lies behind them must not be multiplied
      args.w_map = encode_matrices(args.w, b, plan.maps > 0 ? 1 : experts(product), b_rows, plan.w_box);
  }
  if (plan.y_box > 0) args.y_map = encode_matrix(args.y, d, d.rows, plan.y_box, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

}  // namespace moetune
