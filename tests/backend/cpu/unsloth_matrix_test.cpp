// Unsloth's matrix of small models in forward, dX and dW through the verifier, with the routings that it lacks.
#include <gtest/gtest.h>

#include "backend/cpu/compare.h"
#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/operands.h"
#include "backend/cpu/reference.h"
#include "naive.h"

namespace moetune {
namespace {

/// What is legal in forward, dX and dW alike. Unsloth multiplies by the top-k weights in forward alone.
struct Setting {
  Projection projection;
  Fusion fusion;
  bool in_unsloths_backward;
};
constexpr Setting kLegal[] = {
    {Projection::up, {}, true},
    {Projection::up, {.permute_x = true}, true},
    {Projection::down, {}, true},
    {Projection::down, {.permute_y = true}, true},
    {Projection::down, {.permute_y = true, .topk_weights = true}, false},
};

struct Model {
  int64_t top_k, experts, hidden, intermediate;
};
std::vector<Model> small_models() {
  std::vector<Model> models;
  for (const int64_t top_k : {1, 4})
    for (const int64_t experts : {4, 16})
      for (const int64_t width : {32, 128, 512}) models.push_back({top_k, experts, width, width});
  return models;
}

Shape shape_of(const Model& model, const Setting& setting, Op op) {
  const bool up = setting.projection == Projection::up;
  Shape shape;
  shape.layer = {.model = "custom",
                 .projection = setting.projection,
                 .experts = model.experts,
                 .top_k = model.top_k,
                 .n = up ? 2 * model.intermediate : model.hidden,
                 .k = up ? model.hidden : model.intermediate,
                 .dtype = Dtype::bf16};
  shape.op = op;
  shape.fusion = setting.fusion;
  return shape;
}

/// Every second expert has no rows.
Routing with_empty_experts(const Model& model, int64_t tokens) {
  std::vector<int32_t> rows(static_cast<size_t>(model.experts));
  const int64_t active = std::max(model.experts / 2, model.top_k);
  for (int64_t i = 0; i < active; ++i)
    rows[i * model.experts / active] = static_cast<int32_t>(tokens * model.top_k / active);
  return routing_from_rows(rows, tokens, model.top_k);
}

class UnslothMatrix : public testing::TestWithParam<Model> {
 protected:
  Problem problem(const Setting& setting, Op op, const std::string& routing, int64_t tokens) const {
    Cell cell;
    cell.shape = shape_of(GetParam(), setting, op);
    cell.tokens = tokens;
    if (routing != "empty") {
      cell.routing = parse_routing(routing);
      return make_problem(cell);
    }
    return {.shape = cell.shape, .routing = with_empty_experts(GetParam(), tokens)};
  }

  /// All legal settings of all ops with the default candidate and one of small blocks that divide nothing.
  void verify_all(const std::string& routing, int64_t tokens) {
    for (const Setting& setting : kLegal)
      for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::string(name(setting.projection)) + " " + text(setting.fusion) +
                     ", " + routing + ", " + std::to_string(tokens) + " tokens");
        const Problem p = problem(setting, op, routing, tokens);
        verify(p, {cpu_variant().fallback(p, naive::device(2)), naive::candidate(24, 96, 48, 2)});
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
        ASSERT_FALSE(cpu_variant().illegal(c, p.shape, naive::device(2))) << text(c);
        set.d.reset(pool_);
        grouped_gemm(product, matrices, cpu_knobs(c), microkernel(), pool_, workspace_);
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
INSTANTIATE_TEST_SUITE_P(Small, UnslothMatrix, testing::ValuesIn(small_models()), [](const auto& test) {
  const Model& model = test.param;
  return "top" + std::to_string(model.top_k) + "_e" + std::to_string(model.experts) + "_" +
         std::to_string(model.hidden);
});

TEST_P(UnslothMatrix, PassesAt128Tokens) {
  verify_all("uniform", 128);
  EXPECT_EQ(cases_, 15);
}
TEST_P(UnslothMatrix, PassesAt1024Tokens) {
  verify_all("uniform", 1024);
  EXPECT_EQ(cases_, 15);
}
TEST_P(UnslothMatrix, PassesOnSkewedRows) { verify_all("zipf:1.5", 128); }
TEST_P(UnslothMatrix, PassesWithTheSameExpertsForAllTokens) { verify_all("single", 128); }
TEST_P(UnslothMatrix, PassesWithEmptyExperts) {
  const Routing routing = with_empty_experts(GetParam(), 128);
  ASSERT_EQ(routing.rows(), 128 * GetParam().top_k);
  if (GetParam().experts > GetParam().top_k) {
    ASSERT_TRUE(std::count(routing.m_sizes.begin(), routing.m_sizes.end(), 0) > 0);
  }
  verify_all("empty", 128);
}

// Of all fusions of both projections, by Unsloth's rules: permute_x belongs to up; permute_y, and the weights that need
// it, to down.
TEST(UnslothSettings, AreAllLegalOnes) {
  const auto listed = [](Projection projection, const Fusion& fusion) {
    return std::count_if(std::begin(kLegal), std::end(kLegal),
                         [&](const Setting& s) { return s.projection == projection && s.fusion == fusion; });
  };
  for (const bool permute_x : {false, true})
    for (const bool permute_y : {false, true})
      for (const bool topk_weights : {false, true}) {
        const Fusion fusion = {.permute_x = permute_x, .permute_y = permute_y, .topk_weights = topk_weights};
        EXPECT_EQ(listed(Projection::up, fusion), !permute_y && !topk_weights) << text(fusion);
        EXPECT_EQ(listed(Projection::down, fusion), !permute_x && (permute_y || !topk_weights)) << text(fusion);
      }
  EXPECT_EQ(
      std::count_if(std::begin(kLegal), std::end(kLegal), [](const Setting& s) { return s.in_unsloths_backward; }), 4);
}

}  // namespace
}  // namespace moetune
