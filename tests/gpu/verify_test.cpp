// Every kernel variant on hard problems on a real GPU: right results, clean guards, wrong kernels caught.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "built_in.h"
#include "find_model.h"
#include "gpu/gpu_test.h"
#include "gpu/plants.h"
#include "variant/space/space.h"
#include "workload/product/passes.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

class KernelTest : public GpuTest {
 protected:
  // Small tiles in large blocks: on a routing of many experts some tiles are whole and the last are cut along k.
  // wgmma's are held too, until a few leave together; or blocks meet in the middle of the experts; or rows are gathered
  // while tiles wait for them; or all blocks share the last tiles.
  static std::vector<Candidate> cut(const std::string& variant, const Problem& problem) {
    std::vector<std::string> texts;
    const Op op = problem.shape.op;
    const bool gathers = before_last_pass(product_of(problem.shape)).a.order != RowOrder::in_place;
    const std::string tma_x = gathers ? "no" : "yes";  // tensor copies don't gather rows
    // And tiles that the rows which mma copies at once don't divide.
    if (variant == "mma")
      texts = {"mma block_m=16 block_n=64 block_k=128 warps=4 stages=6 raster=m group=8 split=2",
               "mma block_m=48 block_n=64 block_k=32 warps=4 stages=3 raster=n group=1 split=1",
               "mma block_m=96 block_n=128 block_k=32 warps=8 stages=2 raster=m group=4 split=1"};
    if (variant == "wgmma")
      for (const int hold : {0, 16, 80})
        texts.push_back(
            fmt::format("wgmma block_m=16 block_n=64 block_k=64 stages=4 raster=m group=4 consumers=1 "
                        "schedule=cooperative swap=yes cluster=none in_flight=1 tma_x={} tma_store=no "
                        "tiles=dynamic split=4 hold={}",
                        tma_x, hold));
    if (variant == "wgmma")
      for (const std::string knobs :
           {"tma_x=yes tiles=dynamic mix=2", "tma_x=no tiles=dynamic mix=3", "tma_x=yes tiles=static gather=first",
            "tma_x=yes tiles=dynamic gather=first", "tma_x=yes tiles=static pace=common gather=first",
            "tma_x=yes tiles=static cluster=m gather=first", "tma_x=yes tiles=static cluster=n",
            "tma_x=no tiles=static cluster=m", "tma_x=yes tiles=static split=0",
            "tma_x=no tiles=static pace=common split=0", "tma_x=yes tiles=static pace=common split=0 gather=first",
            "tma_x=yes tiles=static addressing=pointers split=0"}) {
        // Each block of a cluster copies half of the columns of W, whole planes of them where rows of W are steps of k.
        const int columns = op == Op::dx && knobs.find("cluster=m") != std::string::npos ? 128 : 64;
        texts.push_back(
            fmt::format("wgmma block_m=16 block_n={} block_k=64 stages=4 raster=m group=4 consumers=1 "
                        "schedule=cooperative swap=yes in_flight=1 tma_store=no {}{}",
                        columns, knobs, knobs.find("cluster") == std::string::npos ? " cluster=none" : ""));
      }
    // Tiles that copies store end where an expert's rows do.
    if (variant == "wgmma" && op != Op::dw)
      for (const std::string knobs : {"block_m=48 block_n=64 swap=yes", "block_m=64 block_n=128 swap=no"})
        texts.push_back(
            fmt::format("wgmma {} block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative cluster=none "
                        "in_flight=1 tma_x={} tma_store=yes tiles=static",
                        knobs, tma_x));
    // dW's tiles have whole planes: cut, in clusters, and of each kind of stores.
    if (variant == "wgmma" && op == Op::dw)
      for (const std::string knobs :
           {"swap=yes cluster=none tma_store=no tiles=dynamic split=4",
            "swap=no cluster=none tma_store=no tiles=static split=2", "swap=yes cluster=n tma_store=no tiles=static",
            "swap=no cluster=m tma_store=no tiles=static", "swap=yes cluster=m tma_store=yes tiles=static",
            "swap=no cluster=none tma_store=yes tiles=static", "swap=no cluster=n tma_store=rows tiles=static",
            "swap=no cluster=none tma_store=no tiles=dynamic mix=2",
            "swap=yes cluster=none tma_store=yes tiles=dynamic mix=3"})
        texts.push_back(
            "wgmma block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 "
            "schedule=cooperative in_flight=1 tma_x=yes gather=" +
            std::string(text(problem.shape.fusion).starts_with("permute") ? "first " : "tiles ") + knobs);
    std::vector<Candidate> candidates;
    for (std::string& text : texts) {
      if (const size_t at = text.find("block_k=64");
          multiplies_fp8(problem.shape.layer.format) && at != std::string::npos)
        text.replace(at, 10, "block_k=128");  // a row of the swizzle
      candidates.push_back(parse_candidate(text));
    }
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return find_variant(variant).illegal(candidate, problem.shape, backend().device()).has_value();
    });
    // A fusion forbids some of what its op has, but leaves many.
    const bool takes = !find_variant(variant).illegal(find_variant(variant).fallback(problem, backend().device()),
                                                      problem.shape, backend().device());
    if (variant == "wgmma" && takes) {
      EXPECT_GE(candidates.size(), op == Op::dw                   ? 4u
                                   : problem.shape.fusion.by_slot ? 6u
                                                                  : 8u)
          << text(problem.shape.fusion);
    }
    return candidates;
  }
  // Some legal candidates of a variant, spread over a space; the default first, then tiles that are cut.
  static std::vector<Candidate> some(const std::string& variant, const Problem& problem, size_t count,
                                     const std::string& name = "full") {
    SearchSpace space = load_space(name, built_in());
    keep_variants(space, {variant}, built_in());
    std::vector<Candidate> chosen = {find_variant(variant).fallback(problem, backend().device())};
    for (const Candidate& candidate : cut(variant, problem)) chosen.push_back(candidate);
    const int64_t more = static_cast<int64_t>(count) - 1;
    for (const Candidate& candidate : draw(space, problem.shape, backend().device(), more, problem.seed).legal)
      chosen.push_back(candidate);
    return chosen;
  }
  static void expect_right(const Problem& problem, const std::string& variant, size_t count,
                           const std::string& space = "full") {
    expect_right(problem, some(variant, problem, count, space));
  }
  static void expect_defaults_right(const Problem& problem) {
    std::vector<Candidate> candidates;
    for (const std::string variant : {"mma", "wgmma"}) {
      candidates.push_back(find_variant(variant).fallback(problem, backend().device()));
      if (cannot_run(candidates.back(), problem.shape, backend().device())) candidates.pop_back();
    }
    expect_right(problem, candidates);
  }
  // Skips where other programs hold the memory that it takes.
  static void expect_defaults_right_where_it_fits(const Problem& problem) {
    try {
      expect_defaults_right(problem);
    } catch (const OutOfMemory& error) {
      GTEST_SKIP() << error.what();
    }
  }
  static void expect_right(const Problem& problem, const std::vector<Candidate>& candidates) {
    backend().load(problem);
    backend().compile(problem.shape, candidates);
    for (const Candidate& candidate : candidates) {
      const Verdict verdict = backend().verify({.baseline = {}, .candidate = candidate});
      EXPECT_TRUE(verdict.ok) << text(candidate) << ": " << verdict.reason;
      EXPECT_EQ(verdict.mismatches, 0) << text(candidate);
      EXPECT_TRUE(verdict.elements > 0 || problem.routing.gather_indices.empty());
      EXPECT_LT(verdict.normalised_error, has_scales(problem.shape.layer.format.y) ? 0.05 : 0.01);
    }
  }
};

// Every way to read, to weigh, to store and to finish.
const Fusion kFusionsOfDx[] = {{},
                               {.permute_x = true},
                               {.permute_y = true, .topk_weights = true},
                               {.permute_x = true, .sum_slots = true},
                               {.permute_y = true, .sum_slots = true},
                               {.permute_y = true, .topk_weights = true, .weight_gradient = true}};
// With the gradients of gates; sizes of any kind.
const Fusion kGateGradients[] = {
    {.permute_y = true, .topk_weights = true, .weight_gradient = true, .activation = Activation::silu},
    {.activation = Activation::gelu, .interleaved = true},
    {.permute_y = true, .topk_weights = true, .sum_slots = true, .activation = Activation::gpt_oss}};
const Fusion kFusionsOfDw[] = {{},
                               {.accumulate = true},
                               {.permute_x = true, .accumulate = true},
                               {.fp32_dw = true},
                               {.permute_y = true, .topk_weights = true, .sum_slots = true},
                               {.permute_y = true, .topk_weights = true, .accumulate = true, .fp32_dw = true}};

class HardRouting : public KernelTest, public testing::WithParamInterface<GpuCase> {
 protected:
  static void expect_same_bits(Op op, const Fusion& fusion) {
    const Problem problem = problem_of(GetParam(), Dtype::bf16, fusion, op);
    backend().load(problem);
    for (const std::string variant : {"wgmma", "mma", "simt"})
      for (const Candidate& candidate : some(variant, problem, 1)) {  // the default, and tiles that are cut
        if (find_variant(variant).illegal(candidate, problem.shape, backend().device())) continue;
        const Repetition repetition = backend().repeat({.baseline = {}, .candidate = candidate}, 0.02);
        EXPECT_GT(repetition.launches, 1);
        EXPECT_EQ(repetition.different, 0) << text(candidate) << ": " << repetition.reason;
      }
  }
  void expect_runs(Op op, const Fusion& fusion) {
    const GpuCase& c = GetParam();
    if (c.n > 1000) GTEST_SKIP() << "too large for compute-sanitizer";
    const Problem problem = problem_of(c, Dtype::bf16, fusion, op);
    backend().load(problem);
    // With MOETUNE_EVERY=3 every third, and of other problems other thirds: racecheck takes seconds for each. Its parts
    // are every ninth, with MOETUNE_FROM=0, 3 and 6. With MOETUNE_ONLY=gather=first only those with this value.
    const auto number = [](const char* variable, size_t otherwise) {
      const char* text = std::getenv(variable);
      return text ? std::stoul(text) : otherwise;
    };
    const size_t step = number("MOETUNE_EVERY", 1);
    const char* only = std::getenv("MOETUNE_ONLY");
    size_t place = std::hash<std::string>{}(c.name + std::string(name(op)) + text(fusion)) + number("MOETUNE_FROM", 0);
    for (const std::string variant : {"wgmma", "mma", "simt"})
      for (const Candidate& candidate : some(variant, problem, variant == "wgmma" ? 8 : 3)) {
        if (find_variant(variant).illegal(candidate, problem.shape, backend().device())) continue;
        if (only && (" " + text(candidate) + " ").find(fmt::format(" {} ", only)) == std::string::npos) continue;
        if (++place % step != 0) continue;
        ++launched_;
        const auto blocks = backend().sample({.baseline = {}, .candidate = candidate},
                                             {.blocks = 1, .block_seconds = 1e-5, .hot = true});
        ASSERT_EQ(blocks.size(), 1u);
        EXPECT_GT(blocks[0].seconds, 0) << text(candidate);
      }
  }
  void expect_launches() const {
    if (launched_ == 0) GTEST_SKIP() << "no candidate was launched";
  }

 private:
  int launched_ = 0;
};

const GpuCase kCases[] = {
    {"uniform", 16, 4, 256, 256, 200, "uniform"},
    {"one_row", 16, 1, 128, 128, 1, "uniform"},
    {"no_rows", 16, 1, 128, 128, 1, "balanced", 4},
    {"single", 16, 1, 128, 192, 300, "single"},
    {"block_minus_one", 4, 1, 128, 64, 4 * 63, "balanced"},
    {"block", 4, 1, 128, 64, 4 * 64, "balanced"},
    {"block_plus_one", 4, 1, 128, 64, 4 * 65, "balanced"},
    {"more_experts_than_rows", 128, 2, 64, 64, 3, "uniform"},
    {"more_than_512_experts", 600, 8, 64, 64, 40, "zipf:1"},
    {"zipf", 64, 8, 192, 320, 256, "zipf:1.2"},
    {"tiny", 3, 2, 8, 8, 5, "uniform"},
    {"odd", 5, 2, 77, 51, 33, "uniform"},
    {"even", 5, 2, 78, 54, 33, "uniform"},
    {"four", 5, 2, 132, 100, 65, "uniform"},
    {"one_by_one", 2, 1, 1, 1, 3, "uniform"},
    {"gpt_oss_like", 32, 4, 5760, 2880, 64, "zipf:1"},
    // Along k there is enough for blocks to share the last tiles: each with two others, or some of them in turns.
    {"few_tiles", 4, 2, 192, 1536, 32, "balanced"},
    {"deep", 4, 2, 1280, 4096, 96, "balanced"},
};

TEST_P(HardRouting, Mma) {
  const GpuCase& c = GetParam();
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) expect_right(problem_of(c, dtype), "mma", 12);
  expect_right(problem_of(c, Dtype::bf16, {.permute_x = true}), "mma", 8);
  expect_right(problem_of(c, Dtype::bf16, {.permute_y = true}), "mma", 8);
  expect_right(problem_of(c, Dtype::fp16, {.permute_y = true, .topk_weights = true}), "mma", 8);
  expect_right(problem_of(c, Dtype::bf16, {.permute_y = true, .topk_weights = true, .sum_slots = true}), "mma", 4);
}

TEST_P(HardRouting, Wgmma) {
  const GpuCase& c = GetParam();
  if (c.n % 8 != 0 || c.k % 8 != 0) GTEST_SKIP() << "wgmma takes whole chunks of 8";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) expect_right(problem_of(c, dtype), "wgmma", 8);
  expect_right(problem_of(c, Dtype::bf16, {.permute_x = true}), "wgmma", 6);
  expect_right(problem_of(c, Dtype::bf16, {.permute_y = true}), "wgmma", 6);
  expect_right(problem_of(c, Dtype::fp16, {.permute_y = true, .topk_weights = true}), "wgmma", 6);
  for (const bool weighted : {false, true})  // with and without tensor copies that store slots
    expect_right(problem_of(c, Dtype::bf16, {.permute_y = true, .topk_weights = weighted, .sum_slots = true}), "wgmma",
                 6);
}

// Gates and ups joined, in both orders of W's rows, and a bias.
TEST_P(HardRouting, Finished) {
  const GpuCase& c = GetParam();
  if (c.n % 16 != 0 || c.k % 16 != 0) GTEST_SKIP() << "in wgmma, gate and up rows alternate in groups of 8";
  for (const std::string variant : {"wgmma", "mma", "simt"}) {
    if (variant == "wgmma" && backend().device().compute_capability != 90) continue;
    const size_t count = variant == "simt" ? 2 : 6;
    expect_right(problem_of(c, Dtype::bf16, {.activation = Activation::silu}), variant, count);
    expect_right(problem_of(c, Dtype::fp16,
                            {.permute_x = true, .activation = Activation::gelu, .interleaved = true, .bias = true}),
                 variant, count);
    expect_right(problem_of(c, Dtype::bf16, {.permute_y = true, .topk_weights = true, .bias = true}), variant, count);
    expect_right(problem_of(c, Dtype::bf16, {.permute_x = true, .activation = Activation::silu, .store_h = true}),
                 variant, count);
    expect_right(problem_of(c, Dtype::fp16,
                            {.activation = Activation::gelu, .interleaved = true, .store_h = true, .bias = true}),
                 variant, count);
    expect_right(
        fp8_problem_of(c, ScaleKind::channel, {.activation = Activation::gpt_oss, .interleaved = true, .bias = true}),
        variant, count);
    if (c.n % 256 == 0)
      expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_x = true, .activation = Activation::silu}), variant,
                   count);
  }
}

// Every way to load and to store, with and without tensor copies.
TEST_P(HardRouting, WgmmaCopies) {
  const GpuCase& c = GetParam();
  if (c.n % 8 != 0 || c.k % 8 != 0) GTEST_SKIP() << "wgmma takes whole chunks of 8";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  const auto problem = [&](Dtype dtype, Fusion fusion) { return problem_of(c, dtype, fusion); };
  expect_right(problem(Dtype::bf16, {}), "wgmma", 8, "copies");
  expect_right(problem(Dtype::fp16, {.permute_x = true}), "wgmma", 8, "copies");
  expect_right(problem(Dtype::bf16, {.permute_y = true}), "wgmma", 8, "copies");
  expect_right(problem(Dtype::fp16, {.permute_y = true, .topk_weights = true}), "wgmma", 8, "copies");
}

// Cut and clustered tiles, and every kind of stores, on gradients: kernels that RunsDx and RunsDw launch too.
TEST_P(HardRouting, WgmmaDx) {
  const GpuCase& c = GetParam();
  if (c.n % 8 != 0 || c.k % 8 != 0) GTEST_SKIP() << "wgmma takes whole chunks of 8";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const Fusion& fusion : kFusionsOfDx) expect_right(problem_of(c, Dtype::bf16, fusion, Op::dx), "wgmma", 2);
}
TEST_P(HardRouting, WgmmaDw) {
  const GpuCase& c = GetParam();
  if (c.n % 8 != 0 || c.k % 8 != 0) GTEST_SKIP() << "wgmma takes whole chunks of 8";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const Fusion& fusion : kFusionsOfDw) expect_right(problem_of(c, Dtype::bf16, fusion, Op::dw), "wgmma", 2);
}

TEST_P(HardRouting, Simt) {
  const GpuCase& c = GetParam();
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) expect_right(problem_of(c, dtype), "simt", 4);
  expect_right(problem_of(c, Dtype::bf16, {.permute_x = true}), "simt", 3);
  expect_right(problem_of(c, Dtype::bf16, {.permute_y = true, .topk_weights = true}), "simt", 3);
}

TEST_P(HardRouting, RowsBySlot) {
  const GpuCase& c = GetParam();
  for (const Fusion& fusion : {Fusion{.permute_x = true, .by_slot = true}, {.topk_weights = true, .by_slot = true}})
    for (const std::string variant : {"simt", "mma", "wgmma"}) {
      if (variant == "wgmma" && (c.n % 8 != 0 || c.k % 16 != 0 || backend().device().compute_capability != 90))
        continue;
      expect_right(problem_of(c, Dtype::bf16, fusion), variant, 4);
      expect_right(fp8_problem_of(c, ScaleKind::block, fusion), variant, 4);
    }
}

TEST_P(HardRouting, SimtFp8) {
  const GpuCase& c = GetParam();
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor})
    expect_right(fp8_problem_of(c, scales), "simt", 2);
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_x = true}), "simt", 2);
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_y = true, .topk_weights = true}), "simt", 2);
}
TEST_P(HardRouting, MmaFp8) {
  const GpuCase& c = GetParam();
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor})
    expect_right(fp8_problem_of(c, scales), "mma", 6);
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_x = true}), "mma", 4);
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_y = true, .topk_weights = true}), "mma", 4);
  expect_right(fp8_problem_of(c, ScaleKind::channel, {.permute_x = true}, true, Dtype::fp16), "mma", 4);
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_y = true, .topk_weights = true, .sum_slots = true}), "mma",
               4);
}
TEST_P(HardRouting, WgmmaFp8) {
  const GpuCase& c = GetParam();
  if (c.n % 8 != 0 || c.k % 16 != 0) GTEST_SKIP() << "wgmma takes whole chunks of 16 bytes";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor}) {
    expect_right(fp8_problem_of(c, scales), "wgmma", 6);
    expect_right(fp8_problem_of(c, scales, {.permute_x = true}), "wgmma", 6);
    expect_right(fp8_problem_of(c, scales, weighted), "wgmma", 4);
  }
  expect_right(fp8_problem_of(c, ScaleKind::block, {.permute_y = true, .topk_weights = true, .sum_slots = true}),
               "wgmma", 4);
  expect_right(fp8_problem_of(c, ScaleKind::block, {}, false, Dtype::fp16), "wgmma", 4, "copies");
  expect_right(fp8_problem_of(c, ScaleKind::channel, {}, true), "wgmma", 6);
  expect_right(fp8_problem_of(c, ScaleKind::tensor, {.permute_x = true}, true), "wgmma", 4);
}

TEST_P(HardRouting, WgmmaWidens) {
  const GpuCase& c = GetParam();
  if (c.n % 16 != 0 || c.k % 32 != 0) GTEST_SKIP() << "a scale has 32 columns, and gates alternate in groups of 8";
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  const Fusion weighted{.permute_y = true, .topk_weights = true};
  for (const char* format : {"mxfp4-reordered", "uint4-group32-fp16-reordered"}) {
    expect_right(problem_in(c, format), "wgmma", 6);
    expect_right(problem_in(c, format, {.permute_x = true, .activation = Activation::silu}), "wgmma", 6);
    expect_right(problem_in(c, format, weighted), "wgmma", 4);
  }
  expect_right(
      problem_in(c, "mxfp4-fp16-reordered", {.activation = Activation::gpt_oss, .interleaved = true, .bias = true}),
      "wgmma", 4);
  expect_right(problem_in(c, "int4-group32-reordered", {.permute_y = true, .topk_weights = true, .sum_slots = true}),
               "wgmma", 4);
  if (c.k % 64 == 0)
    expect_right(problem_in(c, "int4-group64-reordered", {.permute_x = true, .by_slot = true}), "wgmma", 4);
  if (c.k % 128 == 0) expect_right(problem_in(c, "uint4-group128-reordered"), "wgmma", 4);
}

TEST_P(HardRouting, WgmmaQuantises) {
  GpuCase c = GetParam();
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  c.n = 512, c.k = (c.k + 15) / 16 * 16;
  for (const Fusion& fusion :
       {Fusion{.activation = Activation::silu}, Fusion{.permute_x = true, .activation = Activation::gelu},
        Fusion{.by_slot = true, .activation = Activation::gpt_oss}}) {
    const Problem problem = fp8_problem_of(c, ScaleKind::block, fusion, false, Dtype::fp8);
    std::vector<Candidate> candidates = {find_variant("wgmma").fallback(problem, backend().device())};
    for (const std::string tile :
         {"block_m=128 swap=no", "block_m=64 swap=no schedule=pingpong tiles=dynamic", "block_m=64 swap=no consumers=1",
          "block_m=128 swap=no cluster=n", "block_m=128 swap=no cluster=m", "block_m=128 swap=no block_k=256 stages=2",
          "block_m=16 swap=yes in_flight=1", "block_m=96 swap=yes", "block_m=48 swap=yes schedule=pingpong in_flight=1",
          "block_m=64 swap=yes cluster=m in_flight=1", "block_m=32 swap=yes consumers=1 tiles=dynamic",
          "block_m=112 swap=yes pace=common"})
      for (const std::string loads : {"tma_x=yes", "tma_x=no", "tma_x=yes gather=first"}) {
        candidates.push_back(parse_candidate(
            with_base("wgmma " + tile + " " + loads,
                      "block_n=256 consumers=2 schedule=cooperative cluster=none tma_w=yes tma_store=no tiles=static "
                      "block_k=128 stages=3 raster=m group=4 in_flight=0")));
        if (cannot_run(candidates.back(), problem.shape, backend().device())) candidates.pop_back();
      }
    EXPECT_GE(candidates.size(), 10u);
    expect_right(problem, candidates);
    for (const Candidate& candidate : candidates)
      EXPECT_EQ(backend().repeat({.baseline = {}, .candidate = candidate}, 0.02).different, 0) << text(candidate);
  }
}

// Whole scales; half of the last one, and W's gates and ups in several of its blocks.
TEST_P(HardRouting, MmaAndSimtQuantise) {
  GpuCase c = GetParam();
  for (const auto& [n, fusion] : {std::pair<int64_t, Fusion>{512, {.permute_x = true, .activation = Activation::silu}},
                                  {400, {.permute_y = true, .activation = Activation::gelu, .interleaved = true}},
                                  {352, {.by_slot = true, .activation = Activation::gpt_oss}},
                                  {16, {.activation = Activation::silu}}}) {
    c.n = n;
    const Problem problem = fp8_problem_of(c, ScaleKind::block, fusion, false, Dtype::fp8);
    for (const std::string variant : {"mma", "simt"}) {
      std::vector<Candidate> candidates = some(variant, problem, variant == "mma" ? 6 : 3);
      if (variant == "mma")
        candidates.push_back(
            parse_candidate("mma block_m=16 block_n=256 block_k=32 warps=4 stages=3 raster=n group=1 split=4"));
      expect_right(problem, candidates);
      EXPECT_EQ(backend().repeat({.baseline = {}, .candidate = candidates[0]}, 0.02).different, 0) << variant;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, HardRouting, testing::ValuesIn(kCases),
                         [](const auto& instance) { return instance.param.name; });

// Launches alone, with no cuBLAS beside them: what scripts/sanitize looks at. Results are compared by the tests above.
TEST_P(HardRouting, Runs) {
  for (const Fusion fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true, .topk_weights = true}})
    expect_runs(Op::fwd, fusion);
  expect_launches();
}
TEST_P(HardRouting, RunsFinished) {
  const GpuCase& c = GetParam();
  for (const Fusion fusion : {Fusion{.permute_x = true, .activation = Activation::silu, .bias = true},
                              Fusion{.activation = Activation::gelu, .interleaved = true},
                              Fusion{.activation = Activation::silu, .store_h = true},
                              Fusion{.activation = Activation::gelu, .interleaved = true, .store_h = true},
                              Fusion{.permute_y = true, .topk_weights = true, .bias = true}})
    if (c.n % 16 == 0 || !is_gated(fusion)) expect_runs(Op::fwd, fusion);
  expect_launches();
}
TEST_P(HardRouting, RunsDx) {
  for (const Fusion& fusion : kFusionsOfDx) expect_runs(Op::dx, fusion);
  expect_launches();
}
TEST_P(HardRouting, GateGradients) {
  for (const std::string variant : {"wgmma", "mma", "simt"})
    for (const Fusion& fusion : kGateGradients) {
      const Problem problem = problem_of(GetParam(), Dtype::bf16, fusion, Op::dx);
      const Candidate usual = find_variant(variant).fallback(problem, backend().device());
      if (!find_variant(variant).illegal(usual, problem.shape, backend().device())) expect_right(problem, {usual});
    }
}
TEST_P(HardRouting, RunsDw) {
  for (const Fusion& fusion : kFusionsOfDw) expect_runs(Op::dw, fusion);
  expect_launches();
}

TEST_P(HardRouting, GivesTheSameBitsAgain) { expect_same_bits(Op::fwd, {.permute_y = true}); }
TEST_P(HardRouting, GivesTheSameBitsOfGradientsAgain) {
  expect_same_bits(Op::dx, {.permute_y = true, .topk_weights = true, .weight_gradient = true});
  expect_same_bits(Op::dw, {.accumulate = true});
}

TEST_F(KernelTest, RanksWithoutRowsAreRight) {
  for (const Fusion fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true, .topk_weights = true}}) {
    const Problem problem = problem_of({"", 16, 1, 64, 64, 1, "balanced", 4}, Dtype::bf16, fusion);
    ASSERT_EQ(problem.rows(), 0);
    backend().load(problem);
    for (const std::string variant : {"wgmma", "mma", "simt"}) {
      const Candidate candidate = find_variant(variant).fallback(problem, backend().device());
      if (find_variant(variant).illegal(candidate, problem.shape, backend().device())) continue;
      const Verdict verdict = backend().verify({.baseline = {}, .candidate = candidate});
      EXPECT_TRUE(verdict.ok) << variant << ": " << verdict.reason;
    }
    for (const std::string& baseline : backend().baselines(problem.shape.layer))
      EXPECT_TRUE(backend().verify({.baseline = baseline, .candidate = {}}).ok) << baseline;
  }
}

Problem problem_of_a_rank(Fusion fusion) {
  return problem_of({"", 16, 4, 128, 128, 100, "zipf:1", 4}, Dtype::bf16, fusion);
}

TEST_F(KernelTest, RowsOfOtherRanksStayUntouchedByMma) {
  expect_right(problem_of_a_rank({.permute_y = true}), "mma", 6);
  expect_right(problem_of_a_rank({.permute_x = true}), "mma", 6);
}

TEST_F(KernelTest, RowsOfOtherRanksStayUntouchedByWgmma) {
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const std::string space : {"full", "copies"}) {
    expect_right(problem_of_a_rank({.permute_y = true}), "wgmma", 6, space);
    expect_right(problem_of_a_rank({.permute_x = true}), "wgmma", 6, space);
  }
}

// W has 7.5e9 elements: an offset in 32 bits, with a sign or without, would be another expert's.
TEST_F(KernelTest, ALayerBeyondOffsetsOf32BitsIsRight) {
  constexpr double kMemory = 40e9;
  if (static_cast<double>(backend().device().memory_bytes) < kMemory)
    GTEST_SKIP() << "W alone takes 15 GB, twice that with room";
  Cell cell;
  cell.shape.layer = make_layer(find_model("deepseek-v3"), Projection::up, find_format("bf16"), 1, 1);
  cell.tokens = 256;
  cell.routing = parse_routing("uniform");
  const Problem problem = make_problem(cell);
  const Layer& layer = problem.shape.layer;
  ASSERT_EQ(layer.experts, 256);
  const int64_t first = (int64_t{1} << 32) / (layer.n * layer.k) + 1;  // expert whose W lies behind 2^32 elements
  int64_t rows_behind = 0;
  for (auto expert = static_cast<size_t>(first); expert < problem.routing.m_sizes.size(); ++expert)
    rows_behind += problem.routing.m_sizes[expert];
  ASSERT_GT(rows_behind, 0);

  std::vector<Candidate> candidates = {find_variant("mma").fallback(problem, backend().device())};
  if (backend().device().compute_capability == 90) {
    candidates.push_back(find_variant("wgmma").fallback(problem, backend().device()));
    // The default's tensor maps count rows; these count bytes themselves.
    for (const std::string ways : {"tma_x=no tma_w=no", "tma_x=yes tma_w=yes addressing=pointers"})
      candidates.push_back(parse_candidate(
          "wgmma block_m=32 block_n=128 block_k=64 stages=4 raster=m group=2 consumers=2 schedule=cooperative swap=yes "
          "cluster=none in_flight=1 tma_store=no tiles=dynamic " +
          ways));
  }
  for (const Candidate& candidate : candidates)
    ASSERT_EQ(candidate.variant->illegal(candidate, problem.shape, backend().device()), std::nullopt);
  expect_right(problem, candidates);
  cell.shape.op = Op::dx;
  expect_defaults_right(make_problem(cell));
}

TEST_F(KernelTest, DwBeyondOffsetsOf32BitsIsRight) {
  constexpr double kMemory = 60e9;
  if (static_cast<double>(backend().device().memory_bytes) < kMemory)
    GTEST_SKIP() << "dW takes 5 GB and its references 20";
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 160, .top_k = 2, .n = 4096, .k = 4096};
  cell.shape.op = Op::dw;
  cell.tokens = 400;
  cell.routing = parse_routing("uniform");
  expect_defaults_right_where_it_fits(make_problem(cell));
}

TEST_F(KernelTest, RowsBeyondOffsetsOf32BitsAreRight) {
  constexpr double kMemory = 60e9;
  if (static_cast<double>(backend().device().memory_bytes) < kMemory)
    GTEST_SKIP() << "the rows take 5 GB and their references 20";
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 8, .top_k = 1, .n = 65536, .k = 64, .format = find_format("bf16")};
  cell.tokens = 40000;
  cell.routing = parse_routing("uniform");
  for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
    cell.shape.op = op;
    expect_defaults_right_where_it_fits(make_problem(cell));
  }
}

TEST_F(KernelTest, BaselinesAreRight) {
  for (const Fusion fusion :
       {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true, .topk_weights = true},
        Fusion{.permute_x = true, .activation = Activation::silu, .bias = true},
        Fusion{.permute_x = true, .activation = Activation::silu, .store_h = true},
        Fusion{.activation = Activation::gelu, .interleaved = true, .store_h = true, .bias = true},
        Fusion{.permute_y = true, .topk_weights = true, .bias = true}}) {
    const Problem problem = problem_of({"", 16, 4, 256, 256, 100, "zipf:1"}, Dtype::bf16, fusion);
    backend().load(problem);
    for (const std::string& baseline : backend().baselines(problem.shape.layer)) {
      const Verdict verdict = backend().verify({.baseline = baseline, .candidate = {}});
      EXPECT_TRUE(verdict.ok) << baseline << ": " << verdict.reason;
    }
  }
}

TEST_F(KernelTest, BaselinesOfFp8AreRight) {
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor})
    for (const Fusion fusion : {Fusion{}, Fusion{.permute_x = true}, Fusion{.permute_y = true, .topk_weights = true}}) {
      backend().load(fp8_problem_of({"", 16, 4, 256, 384, 101, "zipf:1"}, scales, fusion));
      try {
        const Verdict verdict = backend().verify({.baseline = "cublas-loop", .candidate = {}});
        EXPECT_TRUE(verdict.ok) << name(scales) << " " << text(fusion) << ": " << verdict.reason;
      } catch (const CandidateFault& fault) {
        EXPECT_EQ(fault.status, Status::illegal);
        EXPECT_NE(scales, ScaleKind::block) << fault.what();
      }
      const Contender of_16{.baseline = "cublas-loop-bf16", .candidate = {}};
      const Verdict verdict = backend().verify(of_16);
      EXPECT_TRUE(verdict.ok) << name(scales) << " " << text(fusion) << ": " << verdict.reason;
      EXPECT_GT(backend().sample(of_16, {}).front().seconds, 0);
    }
  backend().load(problem_of({"", 16, 4, 256, 384, 101, "zipf:1"}));
  EXPECT_THROW(backend().verify({.baseline = "cublas-loop-bf16", .candidate = {}}), CandidateFault);
  const Fusion gated{.permute_x = true, .activation = Activation::silu};
  backend().load(fp8_problem_of({"", 16, 4, 512, 384, 101, "zipf:1"}, ScaleKind::block, gated, false, Dtype::fp8));
  for (const std::string baseline : {"cublas-loop", "cublas-loop-bf16"}) {
    const Verdict verdict = backend().verify({.baseline = baseline, .candidate = {}});
    EXPECT_TRUE(verdict.ok) << baseline << ": " << verdict.reason;
  }
}

// What makes an fp8 result wrong and nothing else: each is caught, on integers or by the error of random inputs.
TEST_F(KernelTest, WrongScalesAndSumsOfFp8AreCaught) {
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const Fp8Plant& plant : kFp8Plants) {
    const Problem problem =
        plant.deep ? fp8_problem_of({"", 4, 2, 128, 7168, 60, "uniform"}, ScaleKind::channel)
                   : fp8_problem_of({"", 16, 4, plant.result == Dtype::fp8 ? 512 : 384, 512, 200, "zipf:1"},
                                    ScaleKind::block, plant.fusion, false, plant.result);
    const std::string folder = testing::TempDir() + "/moetune-planted-fp8";
    plant_kernels(plant.plant, folder);
    const std::unique_ptr<Backend> planted = make_cuda_backend(0, {.kernels_folder = folder, .cache = false});
    planted->load(problem);
    const Candidate candidate = parse_candidate(plant.candidate);
    const Verdict verdict = planted->verify({.baseline = {}, .candidate = candidate});
    EXPECT_FALSE(verdict.ok) << plant.plant.fault;
    if (plant.deep) {  // integers have more bits than its sums
      EXPECT_GT(verdict.mismatches, 0) << plant.plant.fault;
    }
    backend().load(problem);
    EXPECT_TRUE(backend().verify({.baseline = {}, .candidate = candidate}).ok) << plant.plant.fault;
  }
}

// What makes 4 bits wrong and nothing else.
TEST_F(KernelTest, WrongWidenedWeightsAreCaught) {
  if (backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
  for (const WidenedPlant& plant : kWidenedPlants) {
    const Problem problem = problem_in({"", 16, 4, 384, 512, 200, "zipf:1"}, plant.format, plant.fusion);
    const std::string folder = testing::TempDir() + "/moetune-planted-widened";
    plant_kernels(plant.plant, folder);
    const std::unique_ptr<Backend> planted = make_cuda_backend(0, {.kernels_folder = folder, .cache = false});
    planted->load(problem);
    const Candidate candidate = parse_candidate(kWidened);
    EXPECT_FALSE(planted->verify({.baseline = {}, .candidate = candidate}).ok) << plant.plant.fault;
    backend().load(problem);
    EXPECT_TRUE(backend().verify({.baseline = {}, .candidate = candidate}).ok) << plant.plant.fault;
  }
}

// The reference of gates' gradients is made by the pass that is judged: sums in double must catch what both share.
TEST_F(KernelTest, WrongGradientsOfGatesAreCaught) {
  for (const GatePlant& plant : kGatePlants) {
    const Problem problem = problem_of({"", 16, 4, 128, 256, 100, "zipf:1"}, Dtype::bf16, plant.fusion,
                                       plant.fusion.store_h ? Op::fwd : Op::dx);
    const std::string folder = testing::TempDir() + "/moetune-planted-gates";
    plant_kernels(plant.plant, folder);
    const std::unique_ptr<Backend> planted = make_cuda_backend(0, {.kernels_folder = folder, .cache = false});
    planted->load(problem);
    const Contender contender = {.baseline = {},
                                 .candidate = find_variant(plant.plant.variant).fallback(problem, backend().device())};
    std::string found;
    try {
      found = planted->verify(contender).reason;
    } catch (const Error& error) {
      found = error.what();
    }
    EXPECT_NE(found.find(plant.of_reference ? "the reference is wrong at" : "elements differ"), std::string::npos)
        << plant.plant.fault << ": " << found;
    backend().load(problem);
    EXPECT_TRUE(backend().verify(contender).ok) << plant.plant.fault;
  }
}

class WrongKernel : public GpuTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == "wgmma" && backend().device().compute_capability != 90) GTEST_SKIP() << "wgmma is for sm_90a";
    problem_ = planted_problem();
  }
  // The variant's kernels with a fault in them, the problem loaded. Each test's own copy, for several may run at once.
  std::unique_ptr<Backend> wrong(const std::string& fault) const {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '-');
    const std::string folder = testing::TempDir() + "/moetune-planted-" + name;
    plant_kernels(find_plant(fault, GetParam()), folder);
    std::unique_ptr<Backend> backend = make_cuda_backend(0, {.kernels_folder = folder, .cache = false});
    backend->load(problem_);
    return backend;
  }
  Contender contender(const std::string& fault) const {
    return {.baseline = {},
            .candidate = planted_candidate(find_plant(fault, GetParam()), problem_, backend().device())};
  }
  Verdict verdict_of(const std::string& fault) const { return wrong(fault)->verify(contender(fault)); }

  Problem problem_;
};

TEST_P(WrongKernel, TheCopyUnchangedIsRight) {
  const Verdict verdict = verdict_of("none");
  EXPECT_TRUE(verdict.ok) << verdict.reason;
}

// Wrong in some launches only: what a race would do.
TEST_P(WrongKernel, AnUnsteadyElementIsCaught) {
  const Repetition repetition = wrong("unsteady")->repeat(contender("unsteady"), 0.2);
  EXPECT_GT(repetition.different, 0);
  EXPECT_LT(repetition.different, repetition.launches);
  EXPECT_NE(repetition.reason.find("differs from the first, in 1 words of 4 bytes from byte 16 of Y on"),
            std::string::npos)
      << repetition.reason;
}

TEST_P(WrongKernel, EachFaultIsCaughtAndNamed) {
  struct Named {
    const char *fault, *sentence;
    bool differs = false;  // in elements that are counted
  };
  const std::string differ = "differ from cuBLAS on integer inputs, the first at expert";
  std::vector<Named> faults = {{"one ulp", differ.c_str(), true},
                               {"skipped step", differ.c_str(), true},
                               {"unwritten row", "were not written"},
                               {"rows too many", "bytes outside the output were written"}};
  if (GetParam() == "wgmma") {  // which stores by tensor copies too
    faults.push_back({"row unwritten by copies", "were not written"});
    faults.push_back({"rows too many by copies", "bytes outside the output were written"});
  }
  for (const Named& one : faults) {
    const Verdict verdict = verdict_of(one.fault);
    EXPECT_FALSE(verdict.ok) << one.fault;
    EXPECT_NE(verdict.reason.find(one.sentence), std::string::npos) << one.fault << ": " << verdict.reason;
    if (one.differs) {
      EXPECT_GT(verdict.mismatches, 0) << one.fault;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variant, WrongKernel, testing::Values("mma", "wgmma"));

// A candidate's time lies between the roof and a few times the baseline's, and that is no wonder either: a unit
// mistaken, or launches miscounted, would show. Many rows, which the multipliers bound, and few, which the memory does.
TEST_F(KernelTest, TimesAreOfTheRightOrder) {
  constexpr double kRoof = 0.9;  // the clock may be over the figures', and L2 may hold a little
  constexpr double kLoop = 4, kLoopOverRoof = 20;
  const DeviceInfo& device = backend().device();
  if (!(device.peak_flops > 0) || !(device.peak_bandwidth > 0))
    GTEST_SKIP() << "no ceilings are known of " << device.name;
  const auto seconds = [&](const Contender& contender) {
    double best = 1e9;
    for (const Block& block : backend().sample(contender, {.blocks = 3})) best = std::min(best, block.seconds);
    return best;
  };
  for (const int64_t tokens : {2048, 16}) {
    const Problem problem = problem_of({"", 8, 2, 4096, 4096, tokens, "uniform"});
    backend().load(problem);
    const Product product = product_of(problem);
    const double roof = std::max(flops(product) / device.peak_flops, bytes(product) / device.peak_bandwidth);
    const double loop = seconds({.baseline = "cublas-loop", .candidate = {}});
    EXPECT_GT(loop, kRoof * roof) << tokens << " tokens";
    EXPECT_LT(loop, kLoopOverRoof * roof) << tokens << " tokens";
    for (const std::string variant : {"wgmma", "mma"}) {
      const Candidate candidate = find_variant(variant).fallback(problem, device);
      if (find_variant(variant).illegal(candidate, problem.shape, device)) continue;
      const double time = seconds({.baseline = {}, .candidate = candidate});
      EXPECT_GT(time, kRoof * roof) << tokens << " tokens, " << text(candidate);
      EXPECT_LT(time, kLoop * loop) << tokens << " tokens, " << text(candidate);
    }
  }
}

TEST_F(KernelTest, TooLargeAProblemStatesItsSize) {
  try {
    backend().load(problem_of({"", 4096, 8, 1 << 17, 1 << 14, 16, "uniform"}));
    FAIL() << "a layer of 17 TB cannot fit";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("TB of device memory"), std::string::npos) << error.what();
    EXPECT_GT(error.needed_bytes, int64_t{1} << 43);
  }
}

}  // namespace
}  // namespace moetune
