// What is legal of the wgmma variant.
#pragma once
#include <optional>
#include <string>

#include "kernels/wgmma_plan.h"
#include "variant/device.h"
#include "workload/shape.h"

namespace moetune {

constexpr int kMostWgmmaStages = 16;

/// What of a shape the rules depend on, in terms of its product: X, W and Y are its operands a, b and d.
struct WgmmaRoles {
  int64_t m = 0, n = 0, k = 0;
  bool permutes_x = false;     // rows of X, or of W in sums over rows, aren't in expert order
  bool scatters_y = false;     // rows of Y aren't in expert order
  bool looks_up_rows = false;  // rows of Y are scattered or weighted
  bool w_across = false;       // each row of W is a step along k
  bool sums_rows = false;      // each row of X too: k is an expert's number of rows
  bool stores_sums = false;    // Y is stored in fp32
  int weight_bytes = 0;
};
WgmmaRoles wgmma_roles(const Shape& shape);

/// Dynamic shared memory of a block.
int wgmma_shared_bytes(const WgmmaKnobs& knobs, const Shape& shape, const WgmmaRoles& roles);

/// Why the kernel can't run with these knobs, or nothing.
std::optional<std::string> wgmma_illegal(const WgmmaKnobs& knobs, const Shape& shape, const DeviceInfo& device);

}  // namespace moetune
