// The wgmma variant of kernels/wgmma.cuh.
#pragma once
#include "variant/variant.h"

namespace moetune {

Variant wgmma_variant();

}  // namespace moetune
