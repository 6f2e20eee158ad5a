// From requests to cells.
#include "workload/cells.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/embedded.h"
#include "base/group.h"
#include "base/json.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace moetune {
namespace {

using Texts = std::vector<std::string>;

CellRequest tiny() { return {.experts = 4, .top_k = 2, .n = 64, .k = 32}; }
CellRequest mixtral(std::vector<Op> ops = {}) {
  return {.models = {"mixtral-8x7b"}, .projections = {Projection::up, Projection::down}, .ops = std::move(ops)};
}

Texts ids(const CellRequest& request) { return mapped(make_cells(request), id); }
Texts fusions(const CellRequest& request) {
  return mapped(make_cells(request), [](const Cell& cell) { return text(cell.shape.fusion); });
}

// "field: what".
std::string refusal(const CellRequest& request) {
  try {
    make_cells(request);
  } catch (const CellRequestError& error) {
    return error.field() + ": " + error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::request);
    return error.what();
  }
  return "no error";
}

// A trace in a folder of its own, and its routing.
struct TraceFile {
  explicit TraceFile(const std::string& text)
      : routing(parse_routing("trace:" + folder.write("loads.json", text).string())) {}
  TemporaryFolder folder;
  RoutingSpec routing;
};

TEST(Cells, SizesMakeOneCell) {
  const std::vector<Cell> cells = make_cells(tiny());
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].tokens, 256);
  EXPECT_EQ(cells[0].routing.name, "uniform");
  EXPECT_EQ(cells[0].shape.layer.model, "custom");
  EXPECT_EQ(cells[0].shape.layer.format.word, "bf16");
  EXPECT_EQ(cells[0].shape.layer.n, 64);
  EXPECT_EQ(cells[0].shape.layer.k, 32);
  EXPECT_EQ(cells[0].seed, 0u);
  CellRequest seeded = tiny();
  seeded.seed = 7;
  EXPECT_TRUE(holds(ids(seeded)[0], "seed7"));
}

TEST(Cells, AreTheProductOfTheLists) {
  CellRequest request = tiny();
  request.tokens = {1, 2, 3};
  request.routings = {parse_routing("uniform"), parse_routing("zipf:1.0"), parse_routing("single")};
  request.dtypes = {"bf16", "fp16"};
  request.tp = {1, 2}, request.ep = {1, 4};
  const std::vector<Cell> cells = make_cells(request);
  EXPECT_EQ(cells.size(), 3u * 3 * 2 * 2 * 2);
  EXPECT_EQ(cells[1].tokens, 2) << "token counts change fastest";
  EXPECT_EQ(cells[3].routing.name, "zipf");
  request.tokens = {8, 8}, request.dtypes.clear(), request.tp.clear(), request.ep.clear();
  request.routings = {parse_routing("zipf"), parse_routing("zipf:1.0")};
  EXPECT_EQ(make_cells(request).size(), 1u) << "duplicates are dropped";
  request.tokens.resize(9000);
  for (size_t i = 0; i < request.tokens.size(); ++i) request.tokens[i] = static_cast<int64_t>(i) + 1;
  request.routings.push_back(parse_routing("single"));
  EXPECT_EQ(refusal(request), "the lists make over 10000 cells");
}

TEST(Cells, OfEachKindOfLayersAreMade) {
  const TemporaryFolder folder;
  const std::string file = folder
                               .write("m.json", R"({"model_type": "x", "hidden_act": "silu", "hidden_size": 64,
    "num_experts": 8, "num_experts_per_tok": 2, "zero_expert_num": 4, "moe_intermediate_size": [32, 16]})")
                               .string();
  CellRequest request{.models = {file}};
  EXPECT_EQ(ids(request), (Texts{"m/up/fwd/bf16/t256/uniform/e8/top2/n64/k64/zero4",
                                 "m.kind2/up/fwd/bf16/t256/uniform/e8/top2/n32/k64/zero4"}));
  EXPECT_EQ(model_notes(request).size(), 2u);
  request.models = {file + "#2"};
  EXPECT_EQ(ids(request), (Texts{"m.kind2/up/fwd/bf16/t256/uniform/e8/top2/n32/k64/zero4"}));
  request.models = {file + "#3"};
  EXPECT_EQ(refusal(request), file + "#3: there is no kind '3' of expert layers");
  request.models = {file};
  request.intermediate = 48, request.zero_experts = 0;
  EXPECT_EQ(ids(request), (Texts{"m/up/fwd/bf16/t256/uniform/e8/top2/n96/k64"}));
}

TEST(Cells, ModelsGiveTheirLayerAndAreScaledDown) {
  CellRequest request = mixtral();
  EXPECT_EQ(ids(request), (Texts{"mixtral-8x7b/up/fwd/bf16/t256/uniform", "mixtral-8x7b/down/fwd/bf16/t256/uniform"}));
  const std::vector<Cell> whole = make_cells(request);
  EXPECT_EQ(whole[0].shape.layer.n, 2 * 14336);
  EXPECT_EQ(whole[0].shape.layer.k, 4096);
  EXPECT_EQ(whole[1].shape.layer.n, 4096);
  EXPECT_EQ(whole[1].shape.layer.k, 14336);
  request = {.models = {"mixtral-8x7b"}, .experts = 4, .hidden = 64, .intermediate = 32};
  EXPECT_TRUE(holds(ids(request)[0], "/e4/n64/k64"));
  request = {.experts = 4, .top_k = 1, .hidden = 64, .intermediate = 32, .projections = mixtral().projections};
  EXPECT_EQ(make_cells(request)[0].shape.layer.n, 64);
  EXPECT_EQ(make_cells(request)[1].shape.layer.k, 32);
}

TEST(Cells, TensorParallelismDividesTheWidthOfAnExpert) {
  CellRequest request = tiny();
  request.tp = {2};
  EXPECT_EQ(make_cells(request)[0].shape.layer.n, 32);
  request.projections = {Projection::down};
  EXPECT_EQ(make_cells(request)[0].shape.layer.n, 64);
  EXPECT_EQ(make_cells(request)[0].shape.layer.k, 16);
}

TEST(Cells, FusionsGoToTheProjectionThatHasThem) {
  CellRequest request = mixtral();
  request.fusion = {.permute_x = true, .permute_y = true, .topk_weights = true};
  EXPECT_EQ(fusions(request), (Texts{"permute_x", "permute_y+topk_weights"}));
  request.projections = {Projection::up, Projection::up};
  request.fusion.permute_x = false;
  EXPECT_EQ(fusions(request), (Texts{"permute_y+topk_weights"})) << "one projection, listed twice";
  request = mixtral({Op::fwd, Op::dw});
  request.fusion = {.permute_x = true, .by_slot = true};
  EXPECT_EQ(fusions(request), (Texts{"permute_x+by_slot", "permute_x", "by_slot", "plain"}));
}

TEST(Cells, FusionsOfDwGoToDw) {
  CellRequest request = tiny();
  request.ops = {Op::fwd, Op::dx, Op::dw}, request.dtypes = {"bf16", "fp32"};
  request.fusion = {.accumulate = true, .fp32_dw = true};
  EXPECT_EQ(fusions(request), (Texts{"plain", "plain", "plain", "plain", "accumulate+fp32_dw", "accumulate"}));
  request.ops = {Op::dx}, request.fusion.fp32_dw = false;
  EXPECT_EQ(refusal(request), "dx cannot accumulate");
  request.ops = {Op::fwd, Op::dx};
  EXPECT_EQ(refusal(request), "accumulate: belongs to op dw, which is not listed");
  request.ops = {Op::dx, Op::dw}, request.fusion.fp32_dw = true, request.dtypes = {"fp32"};
  EXPECT_EQ(refusal(request), "fp32_dw: has no meaning for dtype fp32");
}

TEST(Cells, GatesGoToForwardOfUpOrToDxOfDown) {
  CellRequest request = mixtral({Op::fwd});
  request.fusion = {.activation = Activation::gpt_oss, .interleaved = true, .bias = true};
  EXPECT_EQ(fusions(request), (Texts{"gpt_oss+interleaved+bias", "bias"}));
  request.ops = {Op::fwd, Op::dx, Op::dw};
  EXPECT_EQ(fusions(request), (Texts{"bias", "plain", "plain", "bias", "gpt_oss+interleaved", "plain"}));
  request.projections = {Projection::up}, request.fusion = {.activation = Activation::silu};
  EXPECT_TRUE(holds(refusal(request), "gated: belongs to fwd of up or, where dx is listed, to dx of down"));
}

TEST(Cells, FusionsOfDxGoToDxAndSumsToMatricesByToken) {
  CellRequest request = mixtral({Op::fwd, Op::dx, Op::dw});
  request.fusion = {
      .permute_x = true, .permute_y = true, .topk_weights = true, .sum_slots = true, .weight_gradient = true};
  EXPECT_EQ(fusions(request),
            (Texts{"permute_x", "permute_x+sum_slots", "permute_x", "permute_y+topk_weights+sum_slots",
                   "permute_y+topk_weights+sum_slots+weight_gradient", "permute_y+topk_weights+sum_slots"}));
  request.fusion = {.permute_x = true, .sum_slots = true};
  for (const std::vector<Op>& ops : {std::vector{Op::fwd, Op::dw}, {Op::fwd}}) {
    request.ops = ops;
    EXPECT_EQ(refusal(request), "sum_slots: needs permute_y or, for dx, permute_x");
  }
  request.projections = {Projection::up};
  EXPECT_EQ(refusal(request), "sum_slots of fwd needs permute_y");
  request = mixtral({Op::fwd});
  request.fusion = {.permute_y = true, .topk_weights = true, .weight_gradient = true};
  EXPECT_EQ(refusal(request), "fwd has no weight gradient");
  request.ops = {Op::dx}, request.projections = {Projection::up}, request.fusion = {.weight_gradient = true};
  EXPECT_EQ(refusal(request), "weight_gradient needs topk_weights");
}

TEST(Cells, OfAnFfnAreItsTwoProjections) {
  CellRequest request{.models = {"mixtral-8x7b"}, .ffn = true};
  EXPECT_EQ(fusions(request), (Texts{"permute_x+silu", "permute_y+topk_weights"}));
  request.fusion = {.by_slot = true, .activation = Activation::gelu};
  EXPECT_EQ(fusions(request), (Texts{"permute_x+by_slot+gelu", "by_slot+topk_weights"}));
  request.projections = {Projection::up};
  EXPECT_EQ(refusal(request), "projection: ffn is up and down already");
  request.projections.clear(), request.ops = {Op::dx};
  EXPECT_EQ(refusal(request), "projection: ffn is fwd alone");
  request.ops.clear(), request.dtypes = {"fp8"}, request.fusion = {};
  EXPECT_TRUE(holds(refusal(request), "down of fp8-block does not read what up writes"));
  EXPECT_TRUE(holds(refusal({.models = {"nemotron-3-nano-30b"}, .ffn = true}), "have no gate"));
}

TEST(Cells, OfAnFfnHaveTheActivationOfTheModel) {
  CellRequest request{.models = {"mixtral-8x7b", "gpt-oss-20b"}, .ffn = true, .dtypes = {"bf16"}};
  EXPECT_EQ(fusions(request),
            (Texts{"permute_x+silu", "permute_y+topk_weights", "permute_x+gpt_oss", "permute_y+topk_weights"}));
  for (const auto& [model, activation] : {std::pair{"gemma-4-26b-a4b", "gelu_pytorch_tanh"},
                                          {"kimi-k3", "situ"},
                                          {"deepseek-v4-pro", "silu with swiglu_limit 10"}}) {
    request.models = {model}, request.fusion = {};
    EXPECT_TRUE(holds(refusal(request), activation)) << model;
    request.fusion.activation = Activation::silu;
    EXPECT_EQ(fusions(request)[0], "permute_x+silu");
    const Texts notes = model_notes(request);
    EXPECT_TRUE(holds(notes.at(0), activation) && holds(notes[0], "silu is put in its place")) << notes[0];
  }
}

TEST(Cells, HaveTheFormatOfThePreset) {
  EXPECT_EQ(make_cells({.models = {"deepseek-v3"}})[0].shape.layer.format.word, "fp8-block");
  CellRequest request{.models = {"gpt-oss-120b"}};
  EXPECT_EQ(make_cells(request)[0].shape.layer.format.word, "mxfp4");
  request.weights = {WeightOrder::reordered};
  EXPECT_EQ(make_cells(request)[0].shape.layer.format.word, "mxfp4-reordered");
  EXPECT_EQ(refusal({.models = {"deepseek-v3"}, .weights = {WeightOrder::reordered}}),
            "weights: belongs to dtypes of 4 bits, of which none is listed");
  request.weights = {};
  const TemporaryFolder folder;
  Json config = Json::parse(*embedded_file("configs/models/gpt-oss/gpt-oss-120b.json"));
  config["name"] = "other", config["format"] = "nvfp4";
  EXPECT_EQ(refusal({.models = {folder.write("other.json", config.dump()).string()}}),
            "dtype: the experts of other are nvfp4, which moetune does not cover yet");
  request.ops = {Op::dw};
  EXPECT_EQ(make_cells(request)[0].shape.layer.format.word, "bf16");
  request.dtypes = {"bf16"};
  EXPECT_TRUE(holds(model_notes(request).at(0), "a server looks that up only for a checkpoint of that dtype"));
}

TEST(Cells, ATraceBecomesACellALayerWithItsRecordedTokens) {
  const TraceFile file(R"({"experts": 4, "top_k": 2, "tokens": 6, "layers": {"a": [6, 3, 2, 1], "b": [3, 3, 3, 3]}})");
  CellRequest request = tiny();
  request.routings = {parse_routing("uniform"), file.routing};
  const std::vector<Cell> cells = make_cells(request);
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].tokens, 256);
  EXPECT_EQ(cells[1].routing.layer, "a");
  EXPECT_EQ(cells[2].routing.layer, "b");
  EXPECT_EQ(cells[1].tokens, 6);
  request.tokens = {12, 24};
  EXPECT_EQ(make_cells(request).size(), 6u);
}

TEST(Cells, Fp8ResultsAreOfUpAlone) {
  CellRequest request{.models = {"qwen3-30b-a3b"}, .projections = mixtral().projections, .dtypes = {"fp8"}};
  request.out_dtypes = {Dtype::fp8}, request.fusion = {.permute_x = true, .activation = Activation::silu};
  const std::vector<Cell> cells = make_cells(request);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].shape.layer.format.word, "fp8-block-fp8");
  EXPECT_EQ(cells[1].shape.layer.format.word, "fp8-block");
  EXPECT_TRUE(holds(id(cells[0]), "fp8-block-fp8"));
}

TEST(Cells, RequestsThatContradictThemselvesNameAField) {
  EXPECT_EQ(refusal({}), "no layer is given");
  EXPECT_EQ(refusal({.experts = 4, .n = 64, .k = 32}), "top_k: the size is missing");
  EXPECT_EQ(refusal({.experts = 4, .top_k = 2, .n = 64}), "k: the size is missing");
  EXPECT_EQ(refusal({.experts = 4, .top_k = 2, .hidden = 64}), "intermediate: the size is missing");
  CellRequest request = tiny();
  request.hidden = 64;
  EXPECT_EQ(refusal(request), "n: n and k exclude hidden and intermediate");
  request = tiny(), request.models = {"mixtral-8x7b"};
  EXPECT_EQ(refusal(request), "model: excludes n and k");
  request = tiny(), request.projections = mixtral().projections;
  EXPECT_EQ(refusal(request), "projection: n and k are the sizes of one projection");
  request = tiny(), request.tp = {3};
  EXPECT_EQ(refusal(request), "tp: 3 does not divide n 64");
  request = tiny(), request.top_k = 5;
  EXPECT_EQ(refusal(request), "top_k 5 is more than the 4 experts");
  request = tiny(), request.fusion = {.permute_x = true, .permute_y = true};
  EXPECT_EQ(refusal(request), "permute_x and permute_y exclude each other");
  EXPECT_EQ(refusal({.experts = 65536, .top_k = 1, .n = 16777216, .k = 16777216}),
            "65536 experts of 16777216 x 16777216 are more than 2^46 weights");
  EXPECT_EQ(refusal({.experts = 65536, .top_k = 1, .hidden = 64, .intermediate = 16777216}),
            "n is 33554432, moetune takes at most 16777216");
}

TEST(Cells, RoutingsThatCannotBeMadeAreFoundEarly) {
  CellRequest request = tiny();
  request.routings = {parse_routing("grouped:3:1")};
  EXPECT_THROW(require_problems(make_cells(request)), Error);
  request.routings = {parse_routing("grouped:2:1")};
  EXPECT_NO_THROW(require_problems(make_cells(request)));
}

}  // namespace
}  // namespace moetune
