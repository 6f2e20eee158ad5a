// Tensor maps, which describe matrices to tensor copies.
#pragma once
#include "kernels/args.h"
#include "variant/pack/launch_rule.h"

namespace moetune {

/// Fills the maps of a rule, over the pointers that `args` has already. Boxes are in the 128-byte swizzle, what lies
/// outside a matrix reads as zeros. Throws CandidateFault{launch_error} where the driver refuses one: base and row
/// strides must be multiples of 16 bytes.
void encode_maps(Args& args, const LaunchRule& rule, const Sizes& sizes);

/// The map of one rule over the matrix at `base`; errors as of encode_maps.
TensorMap encode_map(const MapRule& rule, const void* base, const Sizes& sizes);

}  // namespace moetune
