// The forward test matrix of Unsloth's grouped GEMM, and what it leaves out: skewed routing and experts with no rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "backend/cuda/cuda_backend.h"
#include "base/random.h"
#include "variant/space.h"
#include "workload/model.h"

namespace moetune {
namespace {

struct Combination {
  Projection projection;
  Fusion fusion;
};

// What is legal there: permutations of X belong to the first GEMM, those of Y and the weights to the second.
const Combination kCombinations[] = {{Projection::up, {}},
                                     {Projection::up, {.permute_x = true}},
                                     {Projection::down, {}},
                                     {Projection::down, {.permute_y = true}},
                                     {Projection::down, {.permute_y = true, .topk_weights = true}}};

std::vector<Model> models() {
  std::vector<Model> result;
  for (const int64_t top_k : {1, 4})
    for (const int64_t experts : {4, 16})
      for (const int64_t width : {32, 128, 512}) {
        Model model;
        model.name = "small";
        model.experts = experts;
        model.top_k = top_k;
        model.hidden = model.intermediate = width;
        result.push_back(model);
      }
  result.push_back(find_model("llama4-scout"));
  result.push_back(find_model("qwen3-30b-a3b"));
  return result;
}

// A variant and a routing.
class UnslothMatrix : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// So many legal candidates of wgmma are drawn from, spread over the space: each takes a second or two to compile.
constexpr size_t kWgmmaPool = 12;

TEST_P(UnslothMatrix, ForwardIsRight) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: " << cuda_unavailable_reason();
  const auto& [variant, routing] = GetParam();
  const std::unique_ptr<Backend> backend = make_cuda_backend(0, {});
  if (variant == "wgmma" && backend->device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  SearchSpace space = load_space("quick");
  keep_variants(space, {variant});
  int verified = 0;
  for (const Model& model : models())
    for (const Combination& combination : kCombinations)
      for (const int64_t tokens : {128, 1024}) {
        Cell cell;
        cell.shape.layer = make_layer(model, combination.projection, Dtype::bf16, 1, 1);
        cell.shape.fusion = combination.fusion;
        cell.tokens = tokens;
        cell.routing = parse_routing(routing);
        const Problem problem = make_problem(cell);
        backend->load(problem);
        std::vector<Candidate> candidates = {find_variant(variant).fallback(problem, backend->device())};
        const std::vector<Candidate> legal = enumerate(space, cell.shape, backend->device()).legal;
        const size_t pool = variant == "wgmma" ? std::min(kWgmmaPool, legal.size()) : legal.size();
        Random random(static_cast<uint64_t>(verified));
        for (int i = 0; i < 2; ++i) candidates.push_back(legal[random.below(pool) * legal.size() / pool]);
        backend->compile(cell.shape, candidates);
        for (const Candidate& candidate : candidates) {
          const Verdict verdict = backend->verify({.baseline = {}, .candidate = candidate});
          EXPECT_TRUE(verdict.ok) << id(cell) << ": " << text(candidate) << ": " << verdict.reason;
          ++verified;
        }
      }
  EXPECT_EQ(verified, 14 * 5 * 2 * 3);
}

INSTANTIATE_TEST_SUITE_P(Matrix, UnslothMatrix,
                         testing::Combine(testing::Values("mma", "wgmma"),
                                          testing::Values("uniform", "zipf:1.5", "single")),
                         [](const auto& instance) {
                           const std::string routing = std::get<1>(instance.param);
                           return std::get<0>(instance.param) + "_" + routing.substr(0, routing.find(':'));
                         });

}  // namespace
}  // namespace moetune
