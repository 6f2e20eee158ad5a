// The mma variant: persistent mma.sync kernels for sm_80 and newer.
#pragma once
#include "variant/variant.h"

namespace moetune {

Variant mma_variant();

/// How a block's warps share its tile: warps_m * warps_n = warps, each with a multiple of 16 x 16; the split that reads
/// the least shared memory. Nothing where no split exists.
struct WarpGrid {
  int warps_m = 0, warps_n = 0;
  bool operator==(const WarpGrid&) const = default;
};
std::optional<WarpGrid> warp_grid(int block_m, int block_n, int warps);

}  // namespace moetune
