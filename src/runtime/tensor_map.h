// How a tensor map of MapShape is encoded: by whichever entry point of the driver the caller has found.
#pragma once
#include <cuda.h>

#include <vector>

#include "runtime/launch.h"

namespace moetune {

/// Tiled, in the 128-byte swizzle. A box has box_rows rows; of five dimensions the next two are taken whole, and its
/// rows fill as many of the fourth. What lies outside of the matrix reads as zeros. The driver refuses a base or a row
/// stride that is no multiple of 16 bytes.
inline CUresult encode_tensor_map(decltype(&cuTensorMapEncodeTiled) encoder, const MapShape& shape, void* base,
                                  CUtensorMap& map) {
  const std::vector<cuuint64_t> size(shape.sizes.begin(), shape.sizes.end());
  const std::vector<cuuint64_t> stride(shape.strides.begin(), shape.strides.end());
  std::vector<cuuint32_t> box(size.size(), 1);
  box[0] = static_cast<cuuint32_t>(shape.box_columns), box[1] = static_cast<cuuint32_t>(shape.box_rows);
  if (size.size() == 5) {
    for (const size_t i : {1, 2}) box[i] = static_cast<cuuint32_t>(size[i]);
    box[3] = static_cast<cuuint32_t>(static_cast<cuuint64_t>(shape.box_rows) / (size[1] * size[2]));
  }
  const std::vector<cuuint32_t> every(size.size(), 1);
  const CUtensorMapDataType type = shape.dtype == "bf16"   ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : shape.dtype == "fp16" ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return encoder(&map, type, static_cast<cuuint32_t>(size.size()), base, size.data(), stride.data(), box.data(),
                 every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 shape.l2_promotion == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace moetune
