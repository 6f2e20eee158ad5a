// Encoding tensor maps by the driver, whose entry point the runtime finds.
#include "backend/cuda/kernel.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/libraries/runtime.h"
#include "base/error.h"

namespace moetune {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

decltype(&cuTensorMapEncodeTiled) find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceCuda, cudaEnableDefault, &found),
          "cannot find cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess)
    throw CandidateFault(Status::launch_error, "this driver has no tensor maps: install one of CUDA 12 or newer");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

const void* pointer_of(const Args& args, std::string_view name) {
  for (const ArgsField& field : args_fields()) {
    if (field.name != name) continue;
    const void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&args) + field.offset, sizeof pointer);
    return pointer;
  }
  throw Error(Exit::bug, fmt::format("Args has no pointer '{}'", name));
}

}  // namespace

TensorMap encode_map(const MapShape& shape, const void* base) {
  static const auto encoder = find_encoder();
  const std::vector<cuuint64_t> size(shape.sizes.begin(), shape.sizes.end());
  const std::vector<cuuint64_t> stride(shape.strides.begin(), shape.strides.end());
  std::vector<cuuint32_t> box(size.size(), 1);
  box[0] = static_cast<cuuint32_t>(shape.box_columns), box[1] = static_cast<cuuint32_t>(shape.box_rows);
  const std::vector<cuuint32_t> every(size.size(), 1);
  CUtensorMap map;
  const CUresult result =
      encoder(&map, shape.dtype == "bf16" ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
              static_cast<cuuint32_t>(size.size()), const_cast<void*>(base), size.data(), stride.data(), box.data(),
              every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              shape.l2_promotion == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CandidateFault(Status::launch_error,
                         fmt::format("cannot make a tensor map of {} [{}] in boxes of {} rows: error {}", shape.pointer,
                                     fmt::join(size, ", "), shape.box_rows, static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

void encode_maps(Args& args, const std::vector<LaunchMap>& maps) {
  for (const LaunchMap& map : maps) {
    const TensorMap encoded = encode_map(map.shape, pointer_of(args, map.shape.pointer));
    std::memcpy(reinterpret_cast<char*>(&args) + map.offset, &encoded, sizeof encoded);
  }
}

}  // namespace moetune
