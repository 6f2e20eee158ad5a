// The wgmma candidate that is taken where nothing is tuned.
#pragma once
#include "kernels/wgmma_plan.h"
#include "variant/device.h"
#include "variant/wgmma/wgmma_cost.h"
#include "workload/problem.h"

namespace moetune {

/// Legal where the variant supports the shape.
WgmmaKnobs wgmma_default(const WgmmaCost& cost, const Problem& problem, const DeviceInfo& device);

}  // namespace moetune
