// Encoding tensor maps by the driver, whose entry point the runtime finds.
#include "backend/cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

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

// A row-major matrix of 16-bit elements, or, where `matrices` > 0, a map of three dimensions of so many, one after
// another. A matrix without rows, of which nothing is read, is told as one row: maps of nothing there are none.
TensorMap encode(const void* base, int64_t matrices, int64_t rows, int64_t columns, Dtype dtype, int box_rows,
                 CUtensorMapL2promotion promotion, std::string_view what) {
  static const auto encoder = find_encoder();
  const auto row_bytes = static_cast<cuuint64_t>(columns * size_bytes(dtype));
  const std::array<cuuint64_t, 3> size = {static_cast<cuuint64_t>(columns),
                                          static_cast<cuuint64_t>(std::max<int64_t>(1, rows)),
                                          static_cast<cuuint64_t>(std::max<int64_t>(1, matrices))};
  const std::array<cuuint64_t, 2> stride = {row_bytes, row_bytes * size[1]};
  const std::array<cuuint32_t, 3> box = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1}, every = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encoder(&map, dtype == Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
              matrices > 0 ? 3 : 2, const_cast<void*>(base), size.data(), stride.data(), box.data(), every.data(),
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CandidateFault(Status::launch_error, fmt::format("no tensor map of {} [{}, {}] in boxes of {} rows: error {}",
                                                           what, rows, columns, box_rows, static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

}  // namespace

void encode_maps(Args& args, const LaunchPlan& plan, const Product& product) {
  // A miss of an input brings 128 bytes into L2; results are stored, for which this means nothing.
  const auto of = [](const Operand& operand, const void* base, int64_t rows, int box,
                     CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
    return encode(base, 0, rows, operand.columns, operand.dtype, box, promotion, name(operand.matrix));
  };
  const Operand &a = product.a, &b = product.b, &d = product.d;
  const void* a_base = plan.gathers_first ? args.gathered_x : args.x;
  const int64_t a_rows = plan.gathers_first ? owned_rows(product, a) : a.rows;
  const int64_t expert_rows = extent(product, 0, b.row_axis);
  if (plan.x_box > 0) args.x_map = of(a, a_base, a_rows, plan.x_box);
  if (plan.x_rest > 0) args.x_rest_map = of(a, a_base, a_rows, plan.x_rest);
  if (plan.w_box > 0 && is_k_major(b)) args.w_map = of(b, args.w, plan.maps > 0 ? expert_rows : b.rows, plan.w_box);
  // Rows along k end where the expert's do: what lies behind them must not be multiplied.
  if (plan.w_box > 0 && !is_k_major(b))
    args.w_map = encode(args.w, plan.maps > 0 ? 1 : experts(product), expert_rows, b.columns, b.dtype, plan.w_box,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, name(b.matrix));
  if (plan.y_box > 0) args.y_map = of(d, args.y, d.rows, plan.y_box, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

}  // namespace moetune
