// What the variants have in common beside their units' text.
#include "variant/unit.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

Problem problem_of(Op op) {
  Problem problem;
  problem.shape.layer = {.model = "custom", .experts = 3, .top_k = 1, .n = 100, .k = 300};
  problem.shape.op = op;
  problem.routing = routing_from_rows({33, 0, 32}, 65, 1);
  return problem;
}

TEST(Tiles, AreThoseOfTheResultOfTheOp) {
  EXPECT_EQ(tiles_of(32, 64, problem_of(Op::fwd)), (2 + 0 + 1) * 2);  // Y [rows, 100]
  EXPECT_EQ(tiles_of(32, 64, problem_of(Op::dx)), (2 + 0 + 1) * 5);   // dX [rows, 300]
  EXPECT_EQ(tiles_of(32, 64, problem_of(Op::dw)), 3 * 4 * 5);         // dW [100, 300] an expert, with rows or without
}

TEST(Unsupported, NamesTheOp) {
  Shape shape = problem_of(Op::dw).shape;
  const auto reason = [&] { return unsupported("simt", shape, {Dtype::bf16}, {Op::fwd, Op::dw}).value_or(""); };
  EXPECT_EQ(reason(), "");
  shape.op = Op::dx;
  EXPECT_EQ(reason(), "simt does not support dx");
}

}  // namespace
}  // namespace moetune
