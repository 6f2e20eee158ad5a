// Layers on a real GPU: down reads what up wrote and waits for it, whichever kernels or libraries launch them.
#include <gtest/gtest.h>

#include "built_in.h"
#include "gpu/gpu_test.h"
#include "variant/space/space.h"
#include "variant/variant.h"
#include "workload/product/product.h"

namespace moetune {
namespace {

class LayerTest : public GpuTest {
 protected:
  // hidden 256, intermediate 192; of fp8 256, because up hands its rows over in blocks of 128.
  struct Layer {
    Problem up, down;
  };
  static Layer layer_of(const std::string& routing, Dtype dtype, const Fusion& of_up, const Fusion& of_down) {
    const bool fp8 = dtype == Dtype::fp8;
    const int64_t inner = fp8 ? 256 : 192;
    const GpuCase first = {"up", 16, 4, 2 * inner, 256, 300, routing},
                  second = {"down", 16, 4, 256, inner, 300, routing};
    Layer layer = {
        fp8 ? fp8_problem_of(first, ScaleKind::block, of_up, false, Dtype::fp8) : problem_of(first, dtype, of_up),
        fp8 ? fp8_problem_of(second, ScaleKind::block, of_down) : problem_of(second, dtype, of_down)};
    layer.down.shape.layer.projection = Projection::down;
    EXPECT_TRUE(feeds(layer.up.shape, layer.down.shape));
    return layer;
  }
  static bool runs(const Candidate& candidate, const Problem& problem) {
    return !cannot_run(candidate, problem.shape, backend().device());
  }
  static void expect_right(const Layer& layer, const std::vector<Contender>& contenders) {
    backend().load_layer(layer.up, layer.down);
    for (const Contender& contender : contenders) {
      SCOPED_TRACE(text(contender));
      const Verdict verdict = backend().verify(contender);
      EXPECT_TRUE(verdict.ok) << verdict.reason;
      EXPECT_GT(verdict.elements, 0);
      EXPECT_GT(backend().sample(contender, {.blocks = 1, .block_seconds = 1e-4}).at(0).seconds, 0);
      if (!contender.baseline.empty()) continue;
      for (const Contender& part : {Contender{.baseline = "", .candidate = contender.candidate},
                                    Contender{.baseline = "", .candidate = {}, .down = contender.down}})
        EXPECT_GT(backend().sample(part, {.blocks = 1, .block_seconds = 1e-4}).at(0).seconds, 0);
    }
  }
  static void expect_right(const std::string& routing, Dtype dtype, const Fusion& of_up, const Fusion& of_down) {
    SCOPED_TRACE(routing + ", " + std::string(name(dtype)));
    const Layer layer = layer_of(routing, dtype, of_up, of_down);
    std::vector<Contender> contenders = {{.baseline = "cublas-loop", .candidate = {}},
                                         {.baseline = "cublas-grouped", .candidate = {}}};
    for (const char* name : {"simt", "mma", "wgmma"}) {
      const Variant& variant = *built_in().find(name);
      const Candidate first = variant.fallback(layer.up, backend().device()),
                      second = variant.fallback(layer.down, backend().device());
      if (runs(first, layer.up) && runs(second, layer.down))
        contenders.push_back({.baseline = "", .candidate = first, .down = second});
    }
    expect_right(layer, contenders);
  }
};

TEST_F(LayerTest, BothLaunchesGiveWhatTheyGiveOneByOne) {
  const Fusion weighted = {.permute_y = true, .topk_weights = true};
  for (const char* routing : {"uniform", "zipf:1.5", "single"}) {
    expect_right(routing, Dtype::bf16, {.permute_x = true, .activation = Activation::silu}, weighted);
    expect_right(routing, Dtype::fp16, {.permute_x = true, .by_slot = true, .activation = Activation::gelu},
                 {.topk_weights = true, .by_slot = true});
  }
  expect_right("uniform", Dtype::bf16,
               {.permute_x = true, .activation = Activation::gpt_oss, .interleaved = true, .bias = true},
               {.permute_y = true, .topk_weights = true, .bias = true});
}

// Down's blocks may begin while up's still run: they wait for up themselves, whichever way they load X.
TEST_F(LayerTest, DownWaitsForUp) {
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma needs Hopper";
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"wgmma"}, built_in());
  int early = 0;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp8})
    for (const char* routing : {"uniform", "zipf:1.5", "single"}) {
      SCOPED_TRACE(std::string(routing) + ", " + std::string(name(dtype)));
      const Layer layer = layer_of(routing, dtype, {.permute_x = true, .activation = Activation::silu},
                                   {.permute_y = true, .topk_weights = true});
      const auto drawn = [&](const Problem& problem) {
        return draw(space, problem.shape, backend().device(), 12, problem.seed).legal;
      };
      const std::vector<Candidate> ups = drawn(layer.up), downs = drawn(layer.down);
      std::vector<Contender> contenders;
      for (size_t i = 0; i < downs.size(); ++i) {
        contenders.push_back({.baseline = "", .candidate = ups[i % ups.size()], .down = downs[i]});
        early += downs[i].variant->plan(downs[i], layer.down.shape).follows == Follows::up;
      }
      expect_right(layer, contenders);
    }
  EXPECT_GT(early, 10);
}

}  // namespace
}  // namespace moetune
