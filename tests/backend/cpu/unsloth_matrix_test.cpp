// Unsloth's matrix has all of its cases. They run in tests/gpu; here grouped_gemm_test.cpp has every op, dtype and
// fusion.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "unsloth_matrix.h"

namespace moetune {
namespace {

using unsloth::FusedProjection;

// Of all fusions of both projections, by Unsloth's rules: permute_x belongs to up; permute_y, and the weights that need
// it, to down.
TEST(UnslothCases, HaveAllLegalFusions) {
  const auto listed = [](Projection projection, const Fusion& fusion) {
    return std::ranges::count_if(unsloth::kFused, [&](const FusedProjection& fused) {
      return fused.projection == projection && fused.fusion == fusion;
    });
  };
  for (const bool permute_x : {false, true})
    for (const bool permute_y : {false, true})
      for (const bool topk_weights : {false, true}) {
        const Fusion fusion = {.permute_x = permute_x, .permute_y = permute_y, .topk_weights = topk_weights};
        EXPECT_EQ(listed(Projection::up, fusion), !permute_y && !topk_weights) << text(fusion);
        EXPECT_EQ(listed(Projection::down, fusion), !permute_x && (permute_y || !topk_weights)) << text(fusion);
      }
}

TEST(UnslothCases, AreAsManyAsThere) {
  std::map<Op, int64_t> cases;
  for (const Op op : unsloth::kOps)
    for (const Model& model : unsloth::all_models()) cases[op] += unsloth::cases_of(op, model);
  EXPECT_EQ(cases, (std::map<Op, int64_t>{{Op::fwd, 392}, {Op::dx, 84}, {Op::dw, 336}}));
}

}  // namespace
}  // namespace moetune
