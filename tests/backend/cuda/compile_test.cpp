// Every variant at its corners, for sm_80 and sm_90a, without a GPU: compiles, uses the planned shared memory, and
// spills nothing but for candidates of wgmma that a search prunes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/verify/service.h"
#include "base/error.h"
#include "base/system/file.h"
#include "built_in.h"
#include "find_model.h"
#include "gpu/allclose.h"
#include "gpu/plants.h"
#include "temporary_folder.h"
#include "variant/space/space.h"
#include "variant/unit.h"
#include "workload/problem.h"

namespace moetune {
namespace {

Shape shape_of(Dtype dtype, int64_t n, int64_t k, Fusion fusion) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = n, .k = k, .format = find_format(name(dtype))};
  shape.fusion = fusion;
  return shape;
}

// Keeps one in so many, where MOETUNE_TEST_SAMPLE says so.
template <class T>
void keep_sample(std::vector<T>& all) {
  const char* sample = std::getenv("MOETUNE_TEST_SAMPLE");
  const size_t step = sample ? std::strtoul(sample, nullptr, 10) : 1;
  for (size_t i = 0; i * step < all.size(); ++i) std::swap(all[i], all[i * step]);
  all.resize((all.size() + step - 1) / step);
}

// Units for one architecture, which compile together.
class Units {
 public:
  explicit Units(std::string arch) : arch_(std::move(arch)) {}

  // Both compilers lay out shared memory with the same function: sizes of its structs must be the same for both.
  void add(const Candidate& candidate, const Shape& shape) {
    texts_.push_back(candidate.variant->unit(candidate, shape));
    const std::string variant = candidate.variant->name, type = variant == "mma" ? "Mma" : "WgmmaBlock";
    if (variant != "simt")
      texts_.back() += fmt::format("static_assert(moetune::{}<Config>::layout.bytes == {}, \"the sizes differ\");\n",
                                   type, candidate.variant->plan(candidate, shape).shared_bytes);
    names_.push_back(fmt::format("{}: {}", title(shape), text(candidate)));
  }
  size_t size() const { return texts_.size(); }

  // Each compiles without spills: what runs untuned, and what variants with a register budget call legal. A tuned
  // candidate of wgmma may spill, which prunes it with a sentence (`prunes`).
  void expect_compile(bool prunes = false) {
    keep_sample(texts_), keep_sample(names_);
    const auto compiled = compile_units(texts_, {.arch = arch_, .sources = kernel_sources()});
    for (size_t i = 0; i < compiled.size(); ++i) {
      const CompileResult& result = compiled[i].result;
      EXPECT_TRUE(compiled[i].cubin.starts_with("\177ELF")) << arch_ << " " << names_[i] << ": " << compiled[i].log;
      EXPECT_GT(result.registers, 0) << arch_ << " " << names_[i];
      if (prunes && result.status == Status::spills)
        EXPECT_TRUE(result.reason == fmt::format("registers spill: {} bytes stored and loaded", result.spill_bytes) ||
                    result.reason.starts_with("ptxas serialised its wgmma instructions: "))
            << names_[i] << ": " << result.reason;
      else
        EXPECT_EQ(result.status, Status::ok) << arch_ << " " << names_[i] << ": " << result.reason;
    }
  }

 private:
  std::string arch_;
  std::vector<std::string> texts_, names_;
};

// Of the full space, the legal candidates at the corners: each value of each knob with the others at either end.
std::vector<Candidate> corners(const std::string& variant, const Shape& shape, const DeviceInfo& device) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {variant}, built_in());
  std::vector<Candidate> result;
  for (const bool low : {true, false})
    for (const auto& [free_knob, free_values] : space.variants[0].values) {
      SearchSpace line = space;
      for (auto& [knob, values] : line.variants[0].values)
        if (knob != free_knob) values = {low ? values.front() : values[values.size() / 2]};
      for (const Candidate& candidate : enumerate(line, shape, device).legal)
        if (std::find(result.begin(), result.end(), candidate) == result.end()) result.push_back(candidate);
    }
  return result;
}

// The ends of what the full space has for each of wgmma's knobs, all of its words and splits (0, 1 and more are three
// kinds), and the ways to copy, of which the full space keeps one. 192 is no end, but all that three warpgroups share.
SearchSpace wgmma_ends() {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"wgmma"}, built_in());
  for (const std::string values : {"tma_w=no,yes", "addressing=base,pointers", "tma_store=no,yes,rows"})
    set_values(space, values, built_in());
  for (auto& [name, values] : space.variants[0].values) {
    const Variant& wgmma = find_variant("wgmma");
    if (!wgmma.knobs[built_in().knob_place(wgmma, name)].words.empty() || name == "consumers" || name == "split")
      continue;
    const bool tile = name == "block_m" || name == "block_n";
    if (values.size() == 1) continue;
    values = tile ? std::vector<int>{values.front(), 192, values.back()} : std::vector{values.front(), values.back()};
  }
  return space;
}

// Two knobs and their values. Where it stands for the most, the number of stages follows from the other knobs.
using Pair = std::tuple<std::string_view, int, std::string_view, int>;

std::vector<Pair> pairs_of(const Candidate& candidate) {
  const std::vector<Knob>& knobs = candidate.variant->knobs;
  const auto end = [&](size_t i) {
    return knobs[i].name == "stages" && candidate.values[i] > 2 ? kLargestLegal : candidate.values[i];
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < knobs.size(); ++i)
    for (size_t j = i + 1; j < knobs.size(); ++j) pairs.emplace_back(knobs[i].name, end(i), knobs[j].name, end(j));
  return pairs;
}

// Few of these candidates that have every pair of values that any of them has: each time the one with most new pairs.
std::vector<Candidate> few_with_all_pairs(const std::vector<Candidate>& candidates) {
  std::vector<std::vector<Pair>> fresh;  // [candidates]
  std::set<Pair> missing;
  for (const Candidate& candidate : candidates) {
    fresh.push_back(pairs_of(candidate));
    missing.insert(fresh.back().begin(), fresh.back().end());
  }
  std::vector<Candidate> chosen;
  while (!missing.empty()) {
    for (std::vector<Pair>& pairs : fresh)
      std::erase_if(pairs, [&](const Pair& pair) { return !missing.contains(pair); });
    const auto best =
        std::max_element(fresh.begin(), fresh.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (const Pair& pair : *best) missing.erase(pair);
    chosen.push_back(candidates[static_cast<size_t>(best - fresh.begin())]);
  }
  return chosen;
}

// Draws one candidate for each shape, of another seed each.
void add_drawn(Units& units, const std::string& variant, const std::vector<Shape>& shapes, const std::string& arch) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {variant}, built_in());
  for (size_t i = 0; i < shapes.size(); ++i)
    for (const Candidate& candidate : draw(space, shapes[i], device_of_arch(arch), 1, /*seed=*/i).legal)
      units.add(candidate, shapes[i]);
}

const char* const kArchs[] = {"sm_80", "sm_90a"};

// The kernels of `variant` at the corners of its full space.
void expect_corners_compile(const std::string& variant, const std::vector<Shape>& shapes, size_t at_least) {
  for (const char* arch : kArchs) {
    Units units(arch);
    for (const Shape& shape : shapes) {
      const size_t before = units.size();
      for (const Candidate& candidate : corners(variant, shape, device_of_arch(arch))) units.add(candidate, shape);
      EXPECT_GE(units.size() - before, at_least);
    }
    units.expect_compile();
  }
}

// wgmma with every knob at its ends, but for what is never legal with the shape's fusions, and every two knobs at
// their ends together, where any of many legal candidates has them so.
void expect_wgmma_ends_compile(const Shape& shape, const std::set<std::string>& never) {
  constexpr int kDrawn = 1500;
  const SearchSpace space = wgmma_ends();
  const std::vector<Candidate> chosen =
      few_with_all_pairs(draw(space, shape, device_of_arch("sm_90a"), kDrawn, /*seed=*/1).legal);
  const Variant& wgmma = find_variant("wgmma");
  for (const auto& [name, values] : space.variants[0].values)
    for (const int value : values) {
      const size_t place = built_in().knob_place(wgmma, name);
      const bool found = std::any_of(chosen.begin(), chosen.end(), [&](const Candidate& candidate) {
        return value == kLargestLegal ? candidate.values[place] > (name == "stages" ? 2 : 0)
                                      : candidate.values[place] == value;
      });
      const std::string word = name + "=" + (value == kLargestLegal ? "most" : knob_text(wgmma.knobs[place], value));
      EXPECT_EQ(found, !never.contains(word)) << word;
    }
  Units units("sm_90a");
  for (const Candidate& candidate : chosen) units.add(candidate, shape);
  units.expect_compile(/*prunes=*/true);
}

const Fusion kScattered = {.permute_y = true, .topk_weights = true};

Shape gradient_of(Op op, const Fusion& fusion) {
  Shape shape = shape_of(Dtype::bf16, 1536, 2048, fusion);
  shape.op = op;
  return shape;
}

// Tests of this name compile candidates for minutes, of which the fast run takes a sample.
TEST(SampledCompile, MmaCorners) {
  expect_corners_compile("mma",
                         {shape_of(Dtype::bf16, 1536, 2048, {}), shape_of(Dtype::fp16, 1536, 2048, {.permute_x = true}),
                          shape_of(Dtype::bf16, 2048, 768, kScattered)},
                         10);
}
TEST(SampledCompile, SimtCorners) {
  expect_corners_compile("simt",
                         {shape_of(Dtype::fp32, 96, 100, {}), shape_of(Dtype::bf16, 96, 100, {.permute_x = true})}, 5);
}
// The largest tile, whole and cut, with every fusion; and copies of two bytes each.
TEST(SampledCompile, MmaAtTheEdgeOfItsRegisters) {
  for (const char* arch : kArchs) {
    Units units(arch);
    for (const std::string split : {"1", "4"})
      for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true}, kScattered})
        for (const int64_t k : {2048, 2050, 2051})
          units.add(parse_candidate("mma block_m=128 block_n=256 block_k=64 warps=8 stages=3 raster=m group=8 split=" +
                                    split),
                    shape_of(Dtype::bf16, k == 2048 ? 1536 : 1537, k, fusion));
    units.expect_compile();
  }
}
TEST(SampledCompile, MmaGradientsAtTheEdgeOfTheirCopies) {
  const Candidate most = parse_candidate(
                      "mma block_m=32 block_n=256 block_k=64 warps=4 stages=3 raster=m group=8 split=4"),
                  more = with_value(most, "block_k", 128);
  for (const char* arch : kArchs) {
    Units units(arch);
    for (const auto& [op, fusion] : {std::pair<Op, Fusion>{Op::dx, {}},
                                     {Op::dx, kScattered},
                                     {Op::dw, {.permute_y = true, .topk_weights = true, .accumulate = true}},
                                     {Op::dw, {.accumulate = true, .fp32_dw = true}}}) {
      const Shape shape = gradient_of(op, fusion);
      units.add(most, shape);
      const auto reason = find_variant("mma").illegal(more, shape, device_of_arch(arch));
      EXPECT_NE(reason.value_or("").find("a thread would copy over 16 chunks"), std::string::npos) << name(op);
    }
    units.expect_compile();
  }
}

// dX and dW under their fusions.
TEST(Compile, Gradients) {
  const std::vector<Shape> shapes = {
      gradient_of(Op::dx, {}),
      gradient_of(Op::dx, {.permute_x = true}),
      gradient_of(Op::dx, kScattered),
      gradient_of(Op::dx, {.permute_x = true, .sum_slots = true}),
      gradient_of(Op::dx, {.permute_y = true, .topk_weights = true, .weight_gradient = true}),
      gradient_of(Op::dw, {}),
      gradient_of(Op::dw, {.permute_x = true}),
      gradient_of(Op::dw, {.permute_y = true, .topk_weights = true, .accumulate = true}),
      gradient_of(Op::dw, {.fp32_dw = true}),
      gradient_of(Op::dw, {.accumulate = true, .fp32_dw = true})};
  for (const auto& [variant, arch] : {std::pair("simt", "sm_80"), {"mma", "sm_80"}, {"wgmma", "sm_90a"}}) {
    Units units(arch);
    add_drawn(units, variant, shapes, arch);
    EXPECT_EQ(units.size(), shapes.size());
    units.expect_compile(/*prunes=*/std::string_view(variant) == "wgmma");
  }
}
TEST(Compile, WgmmaOfEachFunctionOfTheResult) {
  std::vector<Shape> shapes = {
      shape_of(Dtype::bf16, 2048, 768, {.permute_y = true, .topk_weights = true, .bias = true}),
      shape_of(Dtype::bf16, 2048, 768, {.permute_x = true, .activation = Activation::silu, .store_h = true}),
      shape_of(Dtype::bf16, 2048, 768, {.activation = Activation::gpt_oss, .interleaved = true, .bias = true}),
      shape_of(Dtype::bf16, 2048, 768,
               {.permute_y = true, .topk_weights = true, .weight_gradient = true, .activation = Activation::silu})};
  shapes.back().op = Op::dx, shapes.back().layer.projection = Projection::down;
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel})
    for (const Fusion& fusion : {Fusion{.permute_x = true}, Fusion{.by_slot = true, .activation = Activation::gelu}}) {
      shapes.push_back(shape_of(Dtype::fp8, 1536, 2048, fusion));
      shapes.back().layer.format = find_format("fp8", scales);
    }
  shapes.push_back(shape_of(Dtype::fp8, 1536, 2048, {.permute_x = true, .activation = Activation::silu}));
  shapes.back().layer.format = find_format("fp8", ScaleKind::block, Dtype::fp8);
  Units units("sm_90a");
  add_drawn(units, "wgmma", shapes, "sm_90a");
  EXPECT_EQ(units.size(), shapes.size());
  units.expect_compile(/*prunes=*/true);
}
TEST(SampledCompile, WgmmaAcrossItsSpaces) {
  Units units("sm_90a");
  for (const std::string name : {"quick", "copies"}) {
    SearchSpace space = load_space(name, built_in());
    keep_variants(space, {"wgmma"}, built_in());
    for (const Shape& shape :
         {shape_of(Dtype::bf16, 1536, 2048, {}), shape_of(Dtype::fp16, 1536, 2048, {.permute_x = true}),
          shape_of(Dtype::bf16, 2048, 768, kScattered)}) {
      const std::vector<Candidate> legal = enumerate(space, shape, device_of_arch("sm_90a")).legal;
      for (size_t i = 0; i < 8; ++i) units.add(legal.at(i * legal.size() / 8), shape);
    }
  }
  units.expect_compile(/*prunes=*/true);
}
TEST(SampledCompile, WgmmaCorners) {
  expect_wgmma_ends_compile(shape_of(Dtype::bf16, 2048, 768, {}), {"gather=first"});
}
TEST(SampledCompile, WgmmaCornersGathered) {
  expect_wgmma_ends_compile(shape_of(Dtype::fp16, 2048, 768, {.permute_x = true}), {});
}
TEST(SampledCompile, WgmmaCornersScatteredAndWeighted) {
  expect_wgmma_ends_compile(shape_of(Dtype::bf16, 2048, 768, kScattered), {"tma_store=yes", "gather=first"});
}
// What runs untuned where tiles are largest, with all that is fused: a default that spills would leave a cell with
// nothing.
TEST(SampledCompile, WgmmaDefaultsOfLargeTiles) {
  const std::tuple<Op, Projection, Fusion> kinds[] = {
      {Op::fwd, Projection::up, {}},
      {Op::fwd, Projection::up, {.permute_x = true}},
      {Op::fwd, Projection::down, {}},
      {Op::fwd, Projection::down, {.permute_y = true}},
      {Op::fwd, Projection::down, {.permute_y = true, .topk_weights = true}},
      {Op::fwd, Projection::up, {.permute_x = true, .activation = Activation::silu, .store_h = true}},
      {Op::fwd,
       Projection::up,
       {.permute_x = true, .activation = Activation::gpt_oss, .interleaved = true, .bias = true}},
      {Op::dx,
       Projection::down,
       {.permute_y = true, .topk_weights = true, .weight_gradient = true, .activation = Activation::silu}},
      {Op::dw, Projection::up, {.permute_x = true}},
      {Op::dw, Projection::up, {.accumulate = true}},
      {Op::dw, Projection::down, {.permute_y = true, .topk_weights = true, .accumulate = true, .fp32_dw = true}}};
  std::set<std::string> seen;
  Units units("sm_90a");
  const auto add = [&](const char* model, Op op, Projection projection, const Fusion& fusion, ScaleKind scales) {
    for (const char* routing : {"uniform", "zipf:1.0"}) {
      Cell cell;
      const Format& format = find_format(scales == ScaleKind::none ? "bf16" : "fp8", scales);
      cell.shape = {.layer = make_layer(find_model(model), projection, format, 1, 1), .op = op, .fusion = fusion};
      cell.tokens = 4096;
      cell.routing = parse_routing(routing);
      const Candidate candidate = find_variant("wgmma").fallback(make_problem(cell), device_of_arch("sm_90a"));
      if (seen.insert(candidate.variant->unit(candidate, cell.shape)).second) units.add(candidate, cell.shape);
    }
  };
  for (const char* model : {"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"})
    for (const auto& [op, projection, fusion] : kinds) add(model, op, projection, fusion, ScaleKind::none);
  for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel})
    for (const char* model : {"mixtral-8x7b", "qwen3-30b-a3b"})
      for (const auto& [op, projection, fusion] : kinds)
        if (op == Op::fwd && !fusion.store_h) add(model, op, projection, fusion, scales);
  EXPECT_GT(units.size(), 15u);
  units.expect_compile();
}

// Copies of X and W follow k, stores follow n.
TEST(Compile, MmaAtEveryAlignment) {
  const Candidate candidate = parse_candidate("mma block_m=64 block_n=64 block_k=32 warps=4 stages=3 raster=m group=4");
  for (const char* arch : kArchs) {
    Units units(arch);
    for (const auto& [n, k] : {std::pair(64, 64), {66, 68}, {67, 70}, {64, 71}})
      units.add(candidate, shape_of(Dtype::bf16, n, k, {}));
    units.expect_compile();
  }
}

// W of 4 bits in registers, for each element, dtype of X and group of a scale: one unit of W at a time and eight, one
// to four consumers. No spills, no wgmma that is serialised.
TEST(Compile, WgmmaWidensReorderedW) {
  Units units("sm_90a");
  const std::string ways[] = {"block_m=16 block_n=64 block_k=64 stages=4 consumers=1",
                              "block_m=32 block_n=256 block_k=256 stages=2 consumers=2",
                              "block_m=96 block_n=192 block_k=128 stages=3 consumers=3",
                              "block_m=16 block_n=256 block_k=128 stages=3 consumers=4"};
  size_t next = 0;
  for (const Format& format : formats()) {
    if (!format.w.reordered) continue;
    Shape shape = shape_of(Dtype::bf16, 1536, 2048, {.activation = Activation::silu});
    shape.layer.format = format;
    const Candidate candidate =
        parse_candidate("wgmma " + ways[next++ % std::size(ways)] +
                        " raster=m group=1 schedule=cooperative swap=yes cluster=none in_flight=1 tma_x=yes "
                        "tma_store=no tiles=static");
    EXPECT_EQ(candidate.variant->illegal(candidate, shape, device_of_arch("sm_90a")), std::nullopt) << format.word;
    units.add(candidate, shape);
  }
  units.expect_compile();
}

// The pass that reorders W.
TEST(Compile, Reorder) {
  for (const Format& format : formats()) {
    if (!format.w.reordered || format.y.dtype != Dtype::bf16) continue;
    const std::string unit = reorder_unit(format.w);
    EXPECT_EQ(compile_units({&unit, 1}, {.arch = "sm_80", .sources = kernel_sources()}).front().result.status,
              Status::ok)
        << format.word;
  }
}

// W of int8 and of 4 bits, widened to the dtype of X.
TEST(Compile, SimtWidensW) {
  Units units("sm_80");
  for (const Format& format : formats()) {
    if (!has_scales(format.w) || multiplies_fp8(format) || format.w.reordered) continue;
    Shape shape = shape_of(Dtype::bf16, 1536, 2048, {.permute_x = true, .activation = Activation::silu});
    shape.layer.format = format;
    units.add(parse_candidate("simt block_m=16 block_n=64 block_k=16"), shape);
  }
  units.expect_compile();
}

// Each depth of a stage, kind of scales, and copies of 16 bytes and of one, where mma.sync has fp8 and where not.
TEST(SampledCompile, MmaFp8) {
  for (const std::string arch : {"sm_89", "sm_90a", "sm_120"}) {
    Units units(arch);
    for (const ScaleKind scales : {ScaleKind::block, ScaleKind::channel, ScaleKind::tensor})
      for (const std::string block_k : {"32", "64", "128"})
        for (const bool odd : {false, true}) {
          const Fusion fusion = scales == ScaleKind::tensor ? Fusion{.permute_x = true} : odd ? kScattered : Fusion{};
          Shape shape = shape_of(Dtype::fp8, odd ? 1537 : 1536, odd ? 2051 : 2048, fusion);
          shape.layer.format = find_format("fp8", scales, Dtype::bf16, scales == ScaleKind::tensor);
          const std::string tile =
              odd ? "block_m=64 block_n=48 warps=4 split=4" : "block_m=128 block_n=128 warps=8 split=1";
          const Candidate candidate = parse_candidate("mma stages=2 raster=m group=8 block_k=" + block_k + " " + tile);
          EXPECT_EQ(candidate.variant->illegal(candidate, shape, device_of_arch(arch)).value_or(""), "");
          units.add(candidate, shape);
        }
    units.expect_compile();
  }
}

// Tiles of Y in fp8, drawn, where blocks of W's scales lie well and where they don't.
TEST(Compile, QuantisedResults) {
  for (const auto& [variant, arch] : {std::pair("simt", "sm_75"), {"mma", "sm_89"}, {"mma", "sm_120"}}) {
    Units units(arch);
    SearchSpace space = load_space("full", built_in());
    keep_variants(space, {variant}, built_in());
    for (const auto& [n, fusion] :
         {std::pair<int64_t, Fusion>{1536, {.permute_x = true, .activation = Activation::silu}},
          {1424, {.activation = Activation::gelu, .interleaved = true}},
          {784, {.by_slot = true, .activation = Activation::gpt_oss}}}) {
      Shape shape = shape_of(Dtype::fp8, n, 2048, fusion);
      shape.layer.format = format_named("fp8-block-fp8");
      units.add(draw(space, shape, device_of_arch(arch), 1, /*seed=*/n).legal.at(0), shape);
    }
    units.expect_compile();
  }
}

// What the tests on a GPU plant stands in the kernels once, compiles, and is in what runs there.
TEST(SampledCompile, Plants) {
  struct Planted {
    Plant plant;
    std::string unit, arch;
  };
  std::vector<Planted> all;
  const Problem problem = planted_problem();
  for (const Plant& plant : kPlants) {
    const std::string arch = plant.variant == "wgmma" ? "sm_90a" : "sm_80";
    const Candidate candidate = planted_candidate(plant, problem, device_of_arch(arch));
    all.push_back({plant, candidate.variant->unit(candidate, problem.shape), arch});
  }
  for (const Fp8Plant& one : kFp8Plants) {
    Shape shape = shape_of(Dtype::fp8, 384, 512, one.fusion);
    shape.layer.format = find_format("fp8", one.deep ? ScaleKind::channel : ScaleKind::block, one.result);
    shape.layer.n = one.result == Dtype::fp8 ? 512 : 384;
    const Candidate candidate = parse_candidate(one.candidate);
    EXPECT_EQ(candidate.variant->illegal(candidate, shape, device_of_arch("sm_90a")), std::nullopt);
    all.push_back({one.plant, candidate.variant->unit(candidate, shape), "sm_90a"});
  }
  for (const WidenedPlant& one : kWidenedPlants) {
    Shape shape = shape_of(Dtype::bf16, 384, 512, one.fusion);
    shape.layer.format = format_named(one.format);
    const Candidate candidate = parse_candidate(kWidened);
    EXPECT_EQ(candidate.variant->illegal(candidate, shape, device_of_arch("sm_90a")), std::nullopt);
    const bool of_pass = one.plant.file.starts_with("service/");
    all.push_back({one.plant, of_pass ? reorder_unit(shape.layer.format.w) : candidate.variant->unit(candidate, shape),
                   "sm_90a"});
  }
  for (const GatePlant& one : kGatePlants) {
    Problem gated = planted_problem();
    gated.shape.fusion = one.fusion;
    if (!one.fusion.store_h) gated.shape.op = Op::dx, gated.shape.layer.projection = Projection::down;
    const Variant& variant = find_variant(one.plant.variant);
    const bool of_kernel = one.plant.file.starts_with(one.plant.variant);
    const std::string arch = one.plant.variant == "wgmma" ? "sm_90a" : "sm_80";
    all.push_back({one.plant,
                   of_kernel ? variant.unit(variant.fallback(gated, device_of_arch(arch)), gated.shape)
                             : service_unit(Dtype::bf16),
                   arch});
  }
  for (const Planted& one : all)
    EXPECT_NO_THROW(with_plant(kernel_sources().at(one.plant.file), one.plant)) << one.plant.fault;
  keep_sample(all);
  for (const auto& [plant, unit, arch] : all) {
    KernelSources sources = kernel_sources();
    const CompiledUnit right = compile_units({&unit, 1}, {.arch = arch, .sources = sources}).front();
    sources[plant.file] = with_plant(sources[plant.file], plant);
    const CompiledUnit wrong = compile_units({&unit, 1}, {.arch = arch, .sources = sources}).front();
    EXPECT_EQ(right.result.status, Status::ok) << plant.fault << ": " << right.log;
    EXPECT_EQ(wrong.result.status, Status::ok) << plant.variant << ", " << plant.fault << ": " << wrong.log;
    EXPECT_EQ(wrong.cubin == right.cubin, plant.fault == "none") << plant.variant << ", " << plant.fault;
  }
}

TEST(Plants, ASentenceMustStandThereOnce) {
  const Plant plant{"of this test", "mma", "mma/mma.cuh", "once", "twice"};
  EXPECT_EQ(with_plant("not once", plant), "not twice");
  EXPECT_THROW(with_plant("never", plant), std::runtime_error);
  EXPECT_THROW(with_plant("once more than once", plant), std::runtime_error);
}

TEST(Allclose, Compiles) {
  const std::string unit = kAllclose;
  for (const std::string target : {"sm_80", "sm_90a"}) {
    const CompiledUnit compiled = compile_units({&unit, 1}, {.arch = target, .sources = kernel_sources()}).front();
    EXPECT_EQ(compiled.result.status, Status::ok) << compiled.log;
  }
}

TEST(Compiler, ABrokenUnitIsACompileErrorWithItsLine) {
  const std::string unit = "extern \"C\" __global__ void moetune_kernel() { undeclared = 1; }\n";
  const CompiledUnit compiled =
      compile_units({&unit, 1}, {.arch = "sm_80", .sources = kernel_sources(), .cache = false}).front();
  EXPECT_EQ(compiled.result.status, Status::compile_error);
  EXPECT_NE(compiled.result.reason.find("\"undeclared\" is undefined"), std::string::npos) << compiled.result.reason;
}

TEST(Compiler, SpillsAreTheirOwnStatus) {
  const std::string unit = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) moetune_kernel(float* p, int n) {
  float a[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) a[i] = p[i * n + threadIdx.x];
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 200; ++i) a[i] = a[i] * a[(i + 7) % 200] + k;
#pragma unroll
  for (int i = 0; i < 200; ++i) p[i * n + threadIdx.x] = a[i];
})";
  const CompiledUnit compiled =
      compile_units({&unit, 1}, {.arch = "sm_80", .sources = kernel_sources(), .cache = false}).front();
  EXPECT_EQ(compiled.result.status, Status::spills);
  EXPECT_GT(compiled.result.spill_bytes, 0);
}

TEST(Compiler, CachesCubinsAndReplacesADamagedEntry) {
  const TemporaryFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const auto entries = [&] {
    std::vector<std::filesystem::path> paths;
    for (const auto& one : std::filesystem::recursive_directory_iterator(folder.path()))
      if (!one.is_directory()) paths.push_back(one.path());
    return paths;
  };
  const auto compile = [](const std::string& body) {
    const std::string unit = "extern \"C\" __global__ void moetune_kernel(int* p) { *p = " + body + "; }\n";
    return compile_units({&unit, 1}, {.arch = "sm_80", .sources = kernel_sources()}).front();
  };
  const CompiledUnit first = compile("42"), second = compile("42");
  EXPECT_FALSE(first.result.from_cache);
  EXPECT_TRUE(second.result.from_cache);
  EXPECT_EQ(first.cubin, second.cubin);
  EXPECT_EQ(first.result.registers, second.result.registers);
  const std::filesystem::path entry = entries().at(0);
  const std::string text = read_text(entry);
  compile("43");
  std::string flipped = text;
  flipped[text.size() / 2] ^= 1;
  for (const std::string& damaged :
       {text.substr(0, text.size() / 2), flipped, read_text(entries().at(entries()[0] == entry)), std::string()}) {
    if (damaged.empty()) {
      std::filesystem::remove(entry);
      ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);
    } else {
      write_atomic(entry, damaged);
    }
    const CompiledUnit anew = compile("42");
    EXPECT_FALSE(anew.result.from_cache);
    EXPECT_EQ(anew.cubin, first.cubin);
    EXPECT_TRUE(compile("42").result.from_cache);
  }
  unsetenv("XDG_CACHE_HOME");
}

TEST(Compiler, ReadsThePtxasLog) {
  const CompileResult result = read_ptxas_log(
      "ptxas info    : Function properties for k\n"
      "ptxas         .     8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 512 bytes smem\n"
      "ptxas info    : Used 40 registers, used 1 barriers\n");
  EXPECT_EQ(result.registers, 168);
  EXPECT_EQ(result.spill_bytes, 28);
  EXPECT_EQ(result.static_shared_bytes, 512);
  EXPECT_EQ(result.status, Status::spills);
  EXPECT_NE(read_ptxas_log("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized")
                .reason.find("C7510"),
            std::string::npos);
}

TEST(KernelSources, AFolderWithoutArgsIsRefused) {
  EXPECT_THROW(kernel_sources(testing::TempDir() + "/nowhere"), Error);
  try {
    kernel_sources(testing::TempDir());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("args.h is missing"), std::string::npos);
  }
  EXPECT_EQ(hash(kernel_sources(MOETUNE_SOURCE_DIR "/kernels")), hash(kernel_sources()));
}

TEST(KeptUnits, ForgetsWhatWasCompiledFirstAndCompilesItAgain) {
  const Shape shape = shape_of(Dtype::fp32, 64, 64, {});
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"simt"}, built_in());
  std::vector<std::string> units;
  for (const Candidate& candidate : enumerate(space, shape, device_of_arch("sm_80")).legal)
    units.push_back(find_variant("simt").unit(candidate, shape));
  ASSERT_GE(units.size(), 4U);
  const CompilerOptions options{.arch = "sm_80", .sources = kernel_sources(), .cache = false};
  KeptUnits kept(options, 2);
  EXPECT_EQ(kept.compile({units[0], units[0], units[1]}).size(), 3U);
  EXPECT_EQ(kept.size(), 2U);
  kept.compile({units[2]});
  EXPECT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept.compile({units[2]})[0].seconds, kept.get(units[2]).result.seconds) << "kept, not compiled again";
  EXPECT_TRUE(kept.get(units[0]).cubin.starts_with("\177ELF"));
  EXPECT_EQ(kept.size(), 2U);
  for (const CompileResult& result : kept.compile({units[0], units[1], units[2], units[3]}))
    EXPECT_EQ(result.status, Status::ok) << result.reason;
}

}  // namespace
}  // namespace moetune
