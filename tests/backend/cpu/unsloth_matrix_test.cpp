// Unsloth's matrix of small models in forward, dX and dW through the verifier, with the routings that it lacks. Its
// longer sequence is left to tests/gpu.
#include <gtest/gtest.h>

#include <map>

#include "backend/cpu/compare.h"
#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/operands.h"
#include "built_in.h"
#include "three_loops.h"
#include "unsloth_matrix.h"

namespace moetune {
namespace {

using unsloth::FusedProjection;

class UnslothMatrix : public testing::TestWithParam<Model> {
 protected:
  /// All legal settings of all ops with the default candidate and one of small blocks that divide nothing.
  void verify_all(const std::string& routing, int64_t tokens) {
    for (const FusedProjection& fused : unsloth::kFused)
      for (const Op op : unsloth::kOps) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::string(name(fused.projection)) + " " + text(fused.fusion) +
                     ", " + routing + ", " + std::to_string(tokens) + " tokens");
        const Problem p = unsloth::problem_of(unsloth::shape_of(GetParam(), fused, op), GetParam(), routing, tokens);
        verify(p, {find_variant("cpu").fallback(p, three_loops::device(2)), three_loops::candidate(24, 96, 48, 2)});
        ++cases_;
      }
  }

  void verify(const Problem& p, const std::vector<Candidate>& candidates) {
    const Product product = product_of(p);
    const int64_t elements = owned_rows(product, product.d) * product.d.columns;
    for (const Values values : {Values::integer, Values::random}) {
      const OperandSet set = make_set(product, values, pool_);
      const std::vector<float> weights = make_topk_weights(product, values);
      const Matrices matrices = matrices_of(set, weights);
      const bool exact = values == Values::integer;
      const Reference wanted =
          exact ? rounded_reference(product, matrices, pool_) : unrounded_reference(product, matrices, pool_);
      for (const Candidate& c : candidates) {
        ASSERT_FALSE(find_variant("cpu").illegal(c, p.shape, three_loops::device(2))) << text(c);
        set.d.reset(pool_);
        grouped_gemm(product, matrices, cpu_knobs(c), pool_, workspace_);
        const Verdict verdict =
            exact ? compare_exact(product, set, wanted, pool_) : compare_close(product, set, wanted, pool_);
        EXPECT_TRUE(verdict.ok) << text(c) << ": " << verdict.reason;
        EXPECT_EQ(verdict.elements, elements);
      }
    }
  }

  int cases_ = 0;
  ThreadPool pool_{2};
  Workspace workspace_;
};
INSTANTIATE_TEST_SUITE_P(Small, UnslothMatrix, testing::ValuesIn(unsloth::small_models()), [](const auto& test) {
  const Model& model = test.param;
  return "top" + std::to_string(model.top_k) + "_e" + std::to_string(model.experts) + "_" +
         std::to_string(model.hidden);
});

TEST_P(UnslothMatrix, PassesAt128Tokens) {
  verify_all("uniform", 128);
  EXPECT_EQ(cases_, 15);
}
TEST_P(UnslothMatrix, PassesOnSkewedRows) { verify_all("zipf:1.5", 128); }
TEST_P(UnslothMatrix, PassesWithTheSameExpertsForAllTokens) { verify_all("single", 128); }
TEST_P(UnslothMatrix, PassesWithEmptyExperts) {
  const Routing routing = unsloth::with_empty_experts(GetParam(), 128);
  ASSERT_EQ(routing.rows(), 128 * GetParam().top_k);
  if (GetParam().experts > GetParam().top_k) {
    ASSERT_TRUE(std::count(routing.m_sizes.begin(), routing.m_sizes.end(), 0) > 0);
  }
  verify_all("empty", 128);
}

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
