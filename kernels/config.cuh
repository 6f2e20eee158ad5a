// What the Config of a unit says where the host prints no line about it.
#pragma once
#include "operand_type.cuh"
#include "result_weight.cuh"

namespace moetune {

// A tile's products are added to the same sums from its first stage to its last. Other policies take the sums of each
// stage: with `restarts` every stage begins with zeros, and after_stage() adds what the stage made to the tile's sums,
// which begin with zeros, or with Y where the kernel adds to it. All threads of a warpgroup call it once the stage is
// multiplied and before the loader may fill it again.
struct KeepSums {
  static constexpr bool restarts = false;
  template <int columns>
  static __forceinline__ void after_stage(const auto& /*group*/, const auto& /*tile*/, int /*stage*/, int /*step*/,
                                          auto& /*sums*/) {}
};

struct PlainConfig {
  using AfterStage = KeepSums;
};

}  // namespace moetune
