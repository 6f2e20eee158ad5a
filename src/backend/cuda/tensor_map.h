// Tensor maps: what a copy engine must know of a matrix.
#pragma once
#include "kernels/args.h"
#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {

/// Fills the maps that `plan` asks for: of A at args.x (or args.gathered_x), of B at args.w (of one expert, where
/// blocks write maps of their own) and of D at args.y, each [rows, columns] as the product describes it. Boxes are 64
/// elements wide (128 bytes, the swizzle), what lies outside the matrix reads as zeros. Throws
/// CandidateFault{launch_error} where the driver refuses one: base and row strides must be multiples of 16 bytes.
void encode_maps(Args& args, const LaunchPlan& plan, const Product& product);

}  // namespace moetune
