// Tensor maps: what a copy engine must know of a matrix.
#pragma once
#include "kernels/args.h"
#include "variant/variant.h"
#include "workload/problem.h"

namespace moetune {

/// Fills the maps that `plan` asks for: of args.x [x_rows, k], args.w as [experts * n, k] (one
/// expert's [n, k], where blocks write maps of their own) and args.y [y_rows, n]. Boxes
/// are 64 elements wide (128 bytes, the swizzle), what lies outside the matrix reads as zeros. Throws
/// CandidateFault{launch_error} where the driver refuses one: base and row strides must be multiples of 16 bytes.
void encode_maps(Args& args, const LaunchPlan& plan, const Problem& problem);

}  // namespace moetune
