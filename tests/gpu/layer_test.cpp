// Layers on a real GPU: down reads what up wrote and waits for it, whichever kernels or libraries launch them.
#include <gtest/gtest.h>

#include "built_in.h"
#include "gpu/gpu_test.h"
#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {
namespace {

class LayerTest : public GpuTest {
 protected:
  // hidden 256, intermediate 192.
  static void expect_right(const std::string& routing, Dtype dtype, const Fusion& of_up, const Fusion& of_down) {
    const Problem up = problem_of({"up", 16, 4, 384, 256, 300, routing}, dtype, of_up);
    Problem down = problem_of({"down", 16, 4, 256, 192, 300, routing}, dtype, of_down);
    down.shape.layer.projection = Projection::down;
    ASSERT_TRUE(feeds(up.shape, down.shape));
    std::vector<Contender> contenders = {{.baseline = "cublas-loop", .candidate = {}},
                                         {.baseline = "cublas-grouped", .candidate = {}}};
    for (const char* name : {"simt", "mma", "wgmma"}) {
      const Variant& variant = *built_in().find(name);
      const Candidate first = variant.fallback(up, backend().device()),
                      second = variant.fallback(down, backend().device());
      if (cannot_run(first, up.shape, backend().device()) || cannot_run(second, down.shape, backend().device()))
        continue;
      contenders.push_back({.baseline = "", .candidate = first, .down = second});
    }
    backend().load_layer(up, down);
    for (const Contender& contender : contenders) {
      SCOPED_TRACE(routing + ", " + std::string(name(dtype)) + ", " + text(contender));
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
};

TEST_F(LayerTest, BothLaunchesGiveWhatTheyGiveOneByOne) {
  const Fusion weighted = {.permute_y = true, .topk_weights = true};
  for (const char* routing : {"uniform", "zipf:1.5", "single"}) {
    expect_right(routing, Dtype::bf16, {.permute_x = true, .silu = true}, weighted);
    expect_right(routing, Dtype::fp16, {.permute_x = true, .by_slot = true, .gelu = true},
                 {.topk_weights = true, .by_slot = true});
  }
  expect_right("uniform", Dtype::bf16, {.permute_x = true, .gpt_oss = true, .interleaved = true, .bias = true},
               {.permute_y = true, .topk_weights = true, .bias = true});
}

}  // namespace
}  // namespace moetune
