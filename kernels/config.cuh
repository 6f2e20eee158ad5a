// What the Config of a unit says where the host prints no line about it.
#pragma once
#include "operand_type.cuh"
#include "problem.h"
#include "result_gated.cuh"
#include "result_weight.cuh"
#include "scales.cuh"

namespace moetune {

// What happens to the sums between stages. They stay in the multiplier's registers from a tile's first stage to its
// last, or the multiplier `restarts` with zeros every kScaleBlock columns along k, and what it made is added to the
// tile's sums in fp32, `scaled` by the scales of that part.
struct KeepSums {
  static constexpr bool restarts = false, scaled = false;
};
struct Promote {
  static constexpr bool restarts = true, scaled = false;
};
struct PromoteScaled {
  static constexpr bool restarts = true, scaled = true;
};

struct PlainConfig {
  using AfterStage = KeepSums;
};

}  // namespace moetune
