// The mma variant: persistent mma.sync kernels for sm_80 and newer.
#pragma once
#include "variant/cost.h"
#include "variant/variant.h"

namespace moetune {

Variant mma_variant(const Constants& constants = built_in_constants("mma"));

}  // namespace moetune
