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

// A row-major matrix of 16-bit elements. One without rows, of which nothing is read, is told as one row: maps of
// nothing there are none.
TensorMap encode(const void* base, int64_t rows, int64_t columns, Dtype dtype, int box_rows, const char* what) {
  static const auto encoder = find_encoder();
  const std::array<cuuint64_t, 2> size = {static_cast<cuuint64_t>(columns),
                                          static_cast<cuuint64_t>(std::max<int64_t>(1, rows))};
  const std::array<cuuint64_t, 1> stride = {static_cast<cuuint64_t>(columns * size_bytes(dtype))};
  const std::array<cuuint32_t, 2> box = {kBoxColumns, static_cast<cuuint32_t>(box_rows)}, every = {1, 1};
  CUtensorMap map;
  const CUresult result = encoder(
      &map, dtype == Dtype::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
      const_cast<void*>(base), size.data(), stride.data(), box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CandidateFault(Status::launch_error, fmt::format("no tensor map of {} [{}, {}] in boxes of {} rows: error {}",
                                                           what, rows, columns, box_rows, static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

}  // namespace

void encode_maps(Args& args, const LaunchPlan& plan, const Problem& problem) {
  const Layer& layer = problem.shape.layer;
  const int64_t w_experts = plan.maps > 0 ? 1 : layer.local_experts();
  const void* x = plan.gathers_first ? args.gathered_x : args.x;
  const int64_t x_rows = plan.gathers_first ? problem.rows() : problem.x_rows();
  if (plan.x_box > 0) args.x_map = encode(x, x_rows, layer.k, layer.dtype, plan.x_box, "X");
  if (plan.x_rest > 0) args.x_rest_map = encode(x, x_rows, layer.k, layer.dtype, plan.x_rest, "X");
  if (plan.w_box > 0) args.w_map = encode(args.w, w_experts * layer.n, layer.k, layer.dtype, plan.w_box, "W");
  if (plan.y_box > 0) args.y_map = encode(args.y, problem.y_rows(), layer.n, layer.dtype, plan.y_box, "Y");
}

}  // namespace moetune
