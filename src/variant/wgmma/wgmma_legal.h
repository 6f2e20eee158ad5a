// What is legal of the wgmma variant.
#pragma once
#include <optional>
#include <string>

#include "kernels/wgmma_rules.h"
#include "variant/device.h"
#include "workload/shape.h"

namespace moetune {

/// What of a shape the kernel depends on, in terms of its product: X, W and Y are its operands a, b and d.
WgmmaProblem wgmma_problem(const Shape& shape);

/// Why the kernel can't run with these knobs, or nothing.
std::optional<std::string> wgmma_illegal(const WgmmaKnobs& knobs, const Shape& shape, const DeviceInfo& device);

}  // namespace moetune
