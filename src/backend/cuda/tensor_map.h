// Tensor maps, which describe matrices to tensor copies.
#pragma once
#include "kernels/args.h"
#include "variant/pack/launch_rule.h"

namespace moetune {

/// Fills maps, over the pointers that `args` has already. Boxes are in the 128-byte swizzle, what lies
/// outside a matrix reads as zeros. Throws CandidateFault{launch_error} where the driver refuses one: base and row
/// strides must be multiples of 16 bytes.
void encode_maps(Args& args, const std::vector<LaunchMap>& maps);

/// One map, over the matrix at `base`; errors as of encode_maps.
TensorMap encode_map(const MapShape& shape, const void* base);

}  // namespace moetune
