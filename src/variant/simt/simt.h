// The simt variant: CUDA cores, short and obviously right.
#pragma once
#include "variant/variant.h"

namespace moetune {

Variant simt_variant();

}  // namespace moetune
