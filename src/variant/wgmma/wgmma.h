// The wgmma variant of kernels/wgmma.cuh.
#pragma once
#include "variant/cost.h"
#include "variant/variant.h"

namespace moetune {

Variant wgmma_variant(const Constants& constants = built_in_constants("wgmma"));

}  // namespace moetune
