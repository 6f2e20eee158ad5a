// What candidates with wrong results have in common.
#include "record/wrong_results.h"

#include <gtest/gtest.h>

#include "built_in.h"

namespace moetune {
namespace {

Candidate cpu(int block_m, int block_n = 64) { return candidate_of("cpu", {block_m, block_n, 128, 2}); }

Cell cell(int64_t tokens) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .projection = Projection::up, .experts = 4, .top_k = 2, .n = 64, .k = 32};
  cell.tokens = tokens;
  return cell;
}

const Cell kOne = cell(16), kOther = cell(64);
const std::string kFault = "7 of 2048 elements differ (7 never written), the first at expert 1, row 128, column 0";

TEST(WrongResults, HaveTheKnobValuesThatRightCandidatesLack) {
  const auto wrong = wrong_results({{kOne, cpu(16, 64)},
                                    {kOne, cpu(96, 64), kFault},
                                    {kOne, cpu(96, 128), "no"},
                                    {kOther, cpu(96, 64)},  // right there
                                    {kOther, cpu(96, 32), "no"},
                                    {kOther, cpu(48, 128)}});
  ASSERT_TRUE(wrong.has_value());
  EXPECT_EQ(wrong->candidates, 3U);
  EXPECT_EQ(wrong->cells, 2U);
  EXPECT_EQ(wrong->first.candidate, cpu(96, 64));
  EXPECT_EQ(sentence(*wrong), "3 candidates with block_m=96 gave wrong results in 2 cells. The first, in " + id(kOne) +
                                  ": " + kFault + ".");
}

TEST(WrongResults, ShareNothingWhereOneOrAllAreWrong) {
  EXPECT_FALSE(wrong_results({{kOne, cpu(16)}, {kOther, cpu(24)}}).has_value());
  EXPECT_TRUE(wrong_results({{kOne, cpu(16)}, {kOne, cpu(24), kFault}})->knobs.empty());
  EXPECT_TRUE(wrong_results({{kOne, cpu(16), kFault}, {kOne, cpu(24), kFault}})->knobs.empty());
  EXPECT_TRUE(
      sentence(*wrong_results({{kOne, cpu(16), kFault}})).starts_with("1 candidate gave wrong results in 1 cell."));
}

}  // namespace
}  // namespace moetune
