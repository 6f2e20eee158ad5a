// What the model of the wgmma kernels must predict, whatever its constants are.
#include "variant/wgmma/wgmma.h"

#include <gtest/gtest.h>

#include "built_in.h"
#include "h200.h"
#include "variant/variant.h"

namespace moetune {
namespace {

Problem problem(int64_t tokens, Op op = Op::fwd, const std::string& routing = "uniform") {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 64, .top_k = 4, .n = 2048, .k = 2048};
  shape.op = op;
  return make_problem({.shape = shape, .tokens = tokens, .routing = parse_routing(routing), .seed = 0});
}

Problem with_rows(const std::vector<int>& m_sizes, Op op = Op::fwd) {
  Problem result = problem(64, op);
  result.routing.m_sizes = m_sizes;
  return result;
}

WgmmaKnobs knobs() {
  return {.block_m = 128,
          .block_n = 128,
          .block_k = 64,
          .stages = 6,
          .raster = Raster::m,
          .consumers = 2,
          .swap = true,
          .in_flight = 1,
          .tma_x = true,
          .tma_w = true};
}

double seconds(const WgmmaKnobs& knobs, const Problem& problem, const DeviceInfo& device = h200()) {
  static const WgmmaCost cost{built_in_constants("wgmma")};
  return wgmma_seconds(cost, knobs, problem, device);
}

TEST(WgmmaCost, IsUnknownWithoutTheDevicesPeaks) {
  for (double DeviceInfo::*peak : {&DeviceInfo::peak_flops, &DeviceInfo::peak_bandwidth}) {
    DeviceInfo device = h200();
    device.*peak = 0;
    EXPECT_EQ(seconds(knobs(), problem(64), device), 0);
  }
}

TEST(WgmmaCost, IsNoLessThanTheRoofline) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const int64_t tokens : {1, 64, 4096}) {
      const Problem p = problem(tokens, op);
      const double floor = roofline(p);
      EXPECT_GT(seconds(knobs(), p), floor) << tokens;
      EXPECT_LT(seconds(knobs(), p), 8 * floor + 20e-6) << tokens;
    }
}

TEST(WgmmaCost, FallsWhereTheDeviceIsFaster) {
  DeviceInfo memory = h200(), multipliers = h200();
  memory.peak_bandwidth *= 2;
  multipliers.peak_flops *= 2;
  EXPECT_LT(seconds(knobs(), problem(64), memory), 0.7 * seconds(knobs(), problem(64)));
  EXPECT_LT(seconds(knobs(), problem(16384), multipliers), 0.7 * seconds(knobs(), problem(16384)));
}

TEST(WgmmaCost, CountsTilesThatAreCutOffAndSmsWithoutTiles) {
  // A tile of 192 rows holds all rows of an expert; of 176, the rest is a tile of its own that loads W again.
  const Problem even = with_rows(std::vector<int>(64, 192));
  WgmmaKnobs high = knobs(), low = knobs();
  high.block_m = 192, low.block_m = 176;
  high.stages = low.stages = 4;
  EXPECT_LT(seconds(high, even), seconds(low, even));
  // One expert's columns are too few tiles for all SMs, and fewer still where tiles are wide.
  std::vector<int> rows(64);
  rows[5] = 128;
  WgmmaKnobs narrow = knobs(), wide = knobs();
  wide.block_n = 256;
  narrow.stages = wide.stages = 4;
  EXPECT_LT(seconds(narrow, with_rows(rows)), seconds(wide, with_rows(rows)));
}

TEST(WgmmaCost, PairsOfBlocksAreWastedOnSingleTiles) {
  const Problem single = with_rows(std::vector<int>(64, 128)), pairs = with_rows(std::vector<int>(64, 2048));
  WgmmaKnobs paired = knobs();
  paired.cluster = Cluster::m;
  EXPECT_GT(seconds(paired, single), 1.3 * seconds(knobs(), single));
  EXPECT_LT(seconds(paired, pairs), 1.1 * seconds(knobs(), pairs));
}

TEST(WgmmaCost, RoundsThatBeginTogetherWaitForTheirHighestTile) {
  // Every second round of 128 tiles is of high ones, or every round has some.
  std::vector<int> apart(64), mixed(64);
  for (size_t expert = 0; expert < 64; ++expert)
    apart[expert] = expert / 8 % 2 ? 8 : 256, mixed[expert] = expert % 2 ? 8 : 256;
  WgmmaKnobs common = knobs();
  common.block_m = 256, common.stages = 4;
  common.pace = Pace::common;
  DeviceInfo device = h200();
  device.processors = 128;
  device.peak_bandwidth *= 100;
  EXPECT_GT(seconds(common, with_rows(mixed), device), 1.1 * seconds(common, with_rows(apart), device));
}

TEST(WgmmaCost, StoresOverlapWhereConsumersTakeTurns) {
  // dW over few rows: a tile is stored soon after it was begun.
  const Problem p = with_rows(std::vector<int>(64, 64), Op::dw);
  WgmmaKnobs turns = knobs();
  turns.schedule = Schedule::pingpong;
  EXPECT_LT(seconds(turns, p), seconds(knobs(), p));
}

TEST(WgmmaCost, WalksThatShareMoreLoadLess) {
  // 4 x 64 tiles of each expert: a row of 64 tiles has more columns than all four rows.
  Problem p = with_rows(std::vector<int>(64, 512));
  p.shape.layer.n = 8192;
  WgmmaKnobs along_n = knobs(), along_m = knobs(), squares = knobs();
  along_n.raster = Raster::n, along_n.group = 1, along_m.raster = Raster::m, along_m.group = 1;
  squares.raster = Raster::n, squares.group = 4;
  EXPECT_LT(seconds(along_m, p), seconds(along_n, p));
  EXPECT_DOUBLE_EQ(seconds(squares, p), seconds(along_m, p));
}

TEST(WgmmaCost, ExpertsOfManyAndOfFewRowsAreMixedOrTakeLonger) {
  std::vector<int> unlike(64, 16);
  for (size_t expert = 0; expert < 8; ++expert) unlike[expert] = 4096;
  WgmmaKnobs sorted = knobs(), mixed = knobs();
  mixed.mix = 4;
  EXPECT_GT(seconds(sorted, with_rows(unlike, Op::dw)), 1.02 * seconds(mixed, with_rows(unlike, Op::dw)));
  const Problem alike = with_rows(std::vector<int>(64, 512), Op::dw);
  EXPECT_LT(seconds(sorted, alike), seconds(mixed, alike));
}

TEST(WgmmaCost, IsTheVariantsTime) {
  const Problem p = problem(64);
  const Variant& variant = find_variant("wgmma");
  const Candidate fallback = variant.fallback(p, h200());
  EXPECT_GT(variant.seconds(fallback, p, h200()), 0);
  EXPECT_FALSE(find_variant("simt").seconds);
}

}  // namespace
}  // namespace moetune
