// How a candidate of a pack is launched on operands of given sizes: buffers, fills and kernels with their arguments,
// but for addresses. The cuda backend puts those in.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/launch.h"
#include "variant/pack/launch_rule.h"
#include "variant/pack/pack.h"

namespace moetune {

/// A fill, or a kernel if its `bytes` are -1.
struct PackStep {
  LaunchFill fill = {.bytes = -1};

  std::string file = {}, entry = {};
  int threads = 0, cluster = 1;
  int64_t shared_bytes = 0;
  int most_per_processor = 0;  // blocks; 0 = as many as there is room for
  bool cooperative = false;
  bool timed = true;            // else it runs once, before all launches
  int64_t grid[3] = {1, 1, 1};  // blocks
  std::vector<LaunchArgument> arguments = {};

  bool is_fill() const { return fill.bytes >= 0; }
};

struct PackLaunch {
  std::vector<LaunchBuffer> buffers;
  std::vector<PackStep> steps;  // in one stream, in order
};

/// How many blocks of a step's kernel the device can run at once: `held` of formulas. The step's grid and arguments are
/// not known yet.
using HeldBlocks = std::function<int64_t(const PackStep&)>;

/// `sizes` are those of the product (sizes_of), and `processors`. The pointer "null" is no address. Throws
/// Exit::request, with the place, for values that no launch can have.
PackLaunch pack_launch(const Pack& pack, const Candidate& candidate, const Shape& shape, Sizes sizes, int capability,
                       const HeldBlocks& held);

}  // namespace moetune
