// The mma variant: persistent mma.sync kernels for sm_80 and newer.
#pragma once
#include "variant/variant.h"

namespace moetune {

Variant mma_variant();

}  // namespace moetune
