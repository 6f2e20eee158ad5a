// Which rows of results are written, and from how many products their errors add up.
#include "workload/product/product_rows.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

using Rows = std::vector<int64_t>;

// One of two ranks: experts of 3, 0 rows of 4 tokens with top_k 2.
Product shard_product(Op op, Fusion fusion) {
  const Layer layer{.model = "custom", .experts = 4, .top_k = 2, .n = 6, .k = 10, .ep = 2};
  return product_of(Problem{{layer, op, fusion}, first_experts(routing_from_rows({3, 0, 2, 3}, 4, 2), 2), 5});
}
const Fusion kSummed{.permute_x = true, .sum_slots = true};
const Fusion kWithGradient{.permute_y = true, .topk_weights = true, .weight_gradient = true};

TEST(ResultRows, AreThoseOfExpertsInTheirOrder) {
  const Product by_slot = shard_product(Op::dx, {.permute_x = true});
  EXPECT_FALSE(is_filled(by_slot, by_slot.d));
  EXPECT_EQ(by_slot.d.rows, 8);
  EXPECT_EQ(result_rows(by_slot, by_slot.d), 3);
  EXPECT_EQ(result_map(by_slot, by_slot.d), (Rows{0, 2, 4}));
  EXPECT_EQ(result_terms(by_slot, by_slot.d), (Rows{6, 6, 6}));
}
TEST(ResultRows, OfDwHaveTheTermsOfTheirExpert) {
  const Product p = shard_product(Op::dw, {});
  EXPECT_EQ(result_rows(p, p.d), 2 * 6);
  EXPECT_EQ(result_terms(p, p.d), (Rows{3, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0}));
}
TEST(ResultRows, OfSummedSlotsAreAllTokens) {
  const Product p = shard_product(Op::dx, kSummed);
  EXPECT_TRUE(is_filled(p, p.d));
  EXPECT_EQ(result_map(p, p.d), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(result_terms(p, p.d), (Rows{6, 6, 6, 0}));
}
TEST(ResultRows, OfTokensWithSeveralSlotsHaveTheTermsOfAll) {
  const Layer layer{.model = "custom", .experts = 4, .top_k = 2, .n = 6, .k = 10};
  const Product p = product_of(Problem{{layer, Op::dx, kSummed}, routing_from_rows({3, 0, 2, 3}, 4, 2), 5});
  EXPECT_EQ(result_terms(p, p.d), (Rows{12, 12, 12, 12}));
}
TEST(ResultRows, OfTheWeightsGradientAreAllSlots) {
  const Product p = shard_product(Op::dx, kWithGradient);
  const Operand& dweights = p.weight_gradient->dweights;
  EXPECT_TRUE(is_filled(p, dweights));
  EXPECT_FALSE(is_filled(p, p.d));
  EXPECT_EQ(result_map(p, dweights), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(result_terms(p, dweights), (Rows{16, 0, 16, 0, 16, 0, 0, 0}));
}
TEST(RowsOfSlots, AreTheInverseOfGatherIndices) {
  const Product p = shard_product(Op::dx, kSummed);
  EXPECT_EQ(rows_of_slots(p), (std::vector<int32_t>{0, -1, 1, -1, 2, -1, -1, -1}));
}

}  // namespace
}  // namespace moetune
