// Means over cells, op by op, and the fastest of the others.
#include "record/comparison.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

CellSpeedups cell(Op op, int64_t tokens, std::vector<std::pair<std::string, double>> factors) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 4, .top_k = 2, .n = 40, .k = 56, .format = find_format("bf16")};
  cell.shape.op = op, cell.tokens = tokens;
  return {.cell = cell, .factors = std::move(factors)};
}

TEST(Comparison, IsAMeanForEachOpAndOther) {
  const auto found = compare({cell(Op::dx, 8, {{"default", 1.0}, {"loop", 2.0}, {"torch", 1.5}}),
                              cell(Op::dx, 16, {{"default", 1.1}, {"loop", 8.0}}), cell(Op::dw, 8, {{"loop", 0.5}})});
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].other, "default");
  EXPECT_EQ(found[1].other, "loop");
  EXPECT_DOUBLE_EQ(found[1].mean, 4);
  EXPECT_EQ(found[1].least, 2);
  EXPECT_EQ(found[1].most, 8);
  EXPECT_EQ(found[2].cells, 1u);
  EXPECT_EQ(found[3].other, kFastestOther);  // the default is no other, and the second cell has no time of torch
  EXPECT_EQ(found[3].cells, 1u);
  EXPECT_EQ(found[3].least, 1.5);
  EXPECT_EQ(found[3].least_cell, id(cell(Op::dx, 8, {}).cell));
  EXPECT_EQ(found[4].op, Op::dw);  // with one other: no fastest of them
  EXPECT_EQ(found[4].mean, 0.5);
}

TEST(Comparison, OursAreNotTheFastestOthers) {
  const auto found =
      compare({cell(Op::fwd, 8, {{"default", 1.0}, {"loop", 2.0}, {"torch", 1.5}, {"moetune-export (peer)", 1.0}})});
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[4].other, kFastestOther);
  EXPECT_EQ(found[4].least, 1.5);
}

TEST(Comparison, TakesTheFastestOfCellsThatHaveAll) {
  const auto found = compare({cell(Op::fwd, 8, {{"loop", 2.0}, {"torch", 1.5}}), cell(Op::fwd, 16, {{"loop", 8.0}}),
                              cell(Op::fwd, 32, {{"loop", 6.0}, {"torch", 7.0}})});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[2].other, kFastestOther);
  EXPECT_DOUBLE_EQ(found[2].mean, 3);
  EXPECT_EQ(found[2].cells, 2u);
  const auto apart = compare({cell(Op::fwd, 8, {{"loop", 2.0}}), cell(Op::fwd, 16, {{"torch", 8.0}})});
  EXPECT_EQ(apart.size(), 2u);  // no cell has both
}

TEST(Comparison, IsNothingWithoutOthers) {
  EXPECT_TRUE(compare({cell(Op::fwd, 8, {})}).empty());
  EXPECT_TRUE(compare({}).empty());
}

}  // namespace
}  // namespace moetune
