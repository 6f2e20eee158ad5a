// What the model of the mma kernels must predict, whatever its constants are.
#include "variant/mma/mma_cost.h"

#include <gtest/gtest.h>

#include "built_in.h"
#include "h200.h"
#include "variant/variant.h"

namespace moetune {
namespace {

Problem problem(int64_t tokens, Op op = Op::fwd) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 64, .top_k = 4, .n = 2048, .k = 2048};
  shape.op = op;
  return make_problem({.shape = shape, .tokens = tokens, .routing = parse_routing("uniform"), .seed = 0});
}

MmaKnobs knobs() {
  return {.block_m = 64, .block_n = 128, .block_k = 64, .warps = 4, .stages = 4, .raster = Raster::m};
}

double seconds(const MmaKnobs& knobs, const Problem& problem, int blocks = 1, const DeviceInfo& device = h200()) {
  static const MmaCost cost{built_in_constants("mma")};
  return mma_seconds(cost, knobs, blocks, problem, device);
}

TEST(MmaCost, IsUnknownWithoutTheDevicesPeaks) {
  for (double DeviceInfo::*peak : {&DeviceInfo::peak_flops, &DeviceInfo::peak_bandwidth}) {
    DeviceInfo device = h200();
    device.*peak = 0;
    EXPECT_EQ(seconds(knobs(), problem(64), 1, device), 0);
  }
}

TEST(MmaCost, IsNoLessThanTheRoofline) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const int64_t tokens : {1, 64, 4096}) {
      const Problem p = problem(tokens, op);
      const double floor = roofline(p);
      EXPECT_GT(seconds(knobs(), p), floor) << tokens;
      EXPECT_LT(seconds(knobs(), p), 10 * floor + 20e-6) << tokens;
    }
}

TEST(MmaCost, FallsWhereTheDeviceIsFaster) {
  for (double DeviceInfo::*peak : {&DeviceInfo::peak_flops, &DeviceInfo::peak_bandwidth}) {
    DeviceInfo faster = h200();
    faster.*peak *= 2;
    EXPECT_LT(seconds(knobs(), problem(512), 1, faster), seconds(knobs(), problem(512)));
  }
}

TEST(MmaCost, HighTilesAreWastedOnFewRows) {
  MmaKnobs high = knobs();
  high.block_m = 128;
  EXPECT_GT(seconds(high, problem(64)), seconds(knobs(), problem(64)));
}

TEST(MmaCost, MoreBlocksOrStagesHideWaiting) {
  EXPECT_LT(seconds(knobs(), problem(512), 2), seconds(knobs(), problem(512), 1));
  MmaKnobs few = knobs();
  few.stages = 2;
  EXPECT_GT(seconds(few, problem(512)), seconds(knobs(), problem(512)));
}

TEST(MmaCost, PiecesOccupySmsThatHaveNoTile) {
  Problem few = problem(64);
  few.routing.m_sizes.assign(few.routing.m_sizes.size(), 0);
  few.routing.m_sizes[0] = 256;  // 4 x 16 tiles
  MmaKnobs cut = knobs();
  cut.split = 2;
  EXPECT_LT(seconds(cut, few), seconds(knobs(), few));
}

TEST(MmaCost, ChoosesTheDefault) {
  const Variant& variant = find_variant("mma");
  for (const int64_t tokens : {4, 256, 4096}) {
    const Problem p = problem(tokens);
    const Candidate fallback = variant.fallback(p, h200());
    const Candidate other = with_value(fallback, "warps", *find_value(fallback, "warps") == 4 ? 8 : 4);
    ASSERT_GT(variant.seconds(fallback, p, h200()), 0);
    if (variant.illegal(other, p.shape, h200())) continue;
    EXPECT_LE(variant.seconds(fallback, p, h200()), variant.seconds(other, p, h200())) << tokens;
  }
}

}  // namespace
}  // namespace moetune
