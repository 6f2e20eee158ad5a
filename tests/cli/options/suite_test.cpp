// From suites to cells.
#include "cli/options/cells.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cli/typed_cells.h"
#include "record/step.h"
#include "temporary_folder.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

CellOptions suite(const std::string& name) { return typed({"--suite", name}); }

class SuiteFile : public ::testing::Test {
 protected:
  std::string write(const std::string& cells) {
    return folder_.write("s.json", R"({"schema": "moetune.suite/1", "cells": )" + cells + "}").string();
  }
  std::string error(const std::string& cells) {
    const std::string path = write(cells);
    const std::string text = cell_error({"--suite", path});
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  }
  TemporaryFolder folder_;
};

TEST(Suite, HopperPeersAreSixLayersInSixCellsEach) {
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t>, int> layers;
  std::set<std::string> ids;
  for (const Cell& cell : make_cells(suite("hopper-peers"))) {
    const Layer& layer = cell.shape.layer;
    ++layers[{layer.model, layer.experts, layer.top_k, layer.n, layer.k}];
    ids.insert(id(cell));
  }
  EXPECT_EQ(ids.size(), 36u);
  const decltype(layers) expected = {
      {{"mixtral-8x7b", 8, 2, 28672, 4096}, 6},   {{"mixtral-8x7b", 8, 2, 4096, 14336}, 6},
      {{"qwen3-30b-a3b", 128, 8, 1536, 2048}, 6}, {{"qwen3-30b-a3b", 128, 8, 2048, 768}, 6},
      {{"gpt-oss-20b", 32, 4, 5760, 2880}, 6},    {{"custom", 32, 8, 4096, 7168}, 6}};
  EXPECT_EQ(layers, expected);
  EXPECT_TRUE(ids.contains("qwen3-30b-a3b/down/fwd/bf16/t4096/zipf:1"));
}

TEST(Suite, UnseenHasEightLayersThatNoOtherSuiteHas) {
  const auto layers_of = [](const char* name) {
    std::set<std::string> layers;
    for (const Cell& cell : make_cells(suite(name))) layers.insert(cell.shape.layer.model);
    return layers;
  };
  const std::set<std::string> unseen = layers_of("unseen");
  EXPECT_EQ(unseen.size(), 8u);
  for (const char* other : {"hopper-peers", "hopper-fused", "hopper-backward", "training-step", "recorded"})
    for (const std::string& layer : layers_of(other)) EXPECT_FALSE(unseen.contains(layer)) << other << ": " << layer;
  std::map<std::pair<int64_t, std::string>, int> counts;
  for (const Cell& cell : make_cells(suite("unseen"))) ++counts[{cell.tokens, text(cell.routing)}];
  EXPECT_EQ(counts.size(), 12u);
  for (const auto& [regime, cells] : counts) EXPECT_EQ(cells, 8) << regime.first << " " << regime.second;
}

TEST(Suite, UnknownNamesAreAnsweredWithTheNearest) {
  const Caught caught = error_of([] { read_suite("hoper-peers"); });
  EXPECT_EQ(caught.what, "unknown suite 'hoper-peers'");
  EXPECT_EQ(caught.hint, "did you mean 'hopper-peers'?");
}

TEST(Suite, ExcludesOtherOptions) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--model", "gpt-oss-20b"}, {"--dtype", "fp16"}, {"--permute-x"}}) {
    std::vector<std::string> words = {"--suite", "hopper-peers"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(cell_error(words), "--suite excludes the other options of cells except --tokens, --seed and --filter");
  }
}

TEST(Suite, TokensPickItsCells) {
  const std::vector<Cell> cells = make_cells(typed({"--suite", "hopper-peers", "--tokens", "16,4096"}));
  EXPECT_EQ(cells.size(), 24);
  for (const Cell& cell : cells) EXPECT_NE(cell.tokens, 256);
  EXPECT_EQ(cell_error({"--suite", "hopper-peers", "--tokens", "17"}),
            "--tokens 17: the suite 'hopper-peers' has no such cells");
}

TEST(Suite, HardIsWhatItSays) {
  std::set<std::string> fusions, dtypes;
  std::set<int64_t> largest;  // rows of an expert in balanced routings
  bool no_rows = false, one_row = false, all_to_one = false, more_experts_than_rows = false, many_experts = false;
  for (const Cell& cell : make_cells(suite("hard"))) {
    const Problem problem = make_problem(cell);
    const RoutingFigures f = figures(problem.routing);
    fusions.insert(text(cell.shape.fusion));
    dtypes.insert(std::string(cell.shape.layer.format.dtype));
    no_rows |= f.rows == 0;
    one_row |= f.rows == 1;
    all_to_one |= f.active_experts == 1 && f.rows >= 300;
    more_experts_than_rows |= f.rows > 0 && f.rows * 10 < cell.shape.layer.local_experts();
    many_experts |= cell.shape.layer.local_experts() > 512;
    if (cell.routing.name == "balanced") largest.insert(f.max_rows);
    EXPECT_EQ(cell.shape.layer.n % 8 + cell.shape.layer.k % 8, 0) << "tensor copies take whole chunks: " << id(cell);
    EXPECT_LT(flops(product_of(problem)), 1e9) << "small problems only: " << id(cell);
  }
  EXPECT_EQ(fusions,
            (std::set<std::string>{"plain", "permute_x", "permute_y", "permute_y+topk_weights", "permute_x+by_slot",
                                   "by_slot+topk_weights", "permute_y+sum_slots", "permute_y+topk_weights+sum_slots"}));
  EXPECT_EQ(dtypes, (std::set<std::string>{"bf16", "fp16"}));
  EXPECT_TRUE(no_rows && one_row && all_to_one && more_experts_than_rows && many_experts);
  for (const int64_t block : {16, 32, 64, 128})
    for (const int64_t rows : {block - 1, block, block + 1})
      EXPECT_TRUE(largest.contains(rows)) << rows << " rows for every expert";
}

TEST(Suite, RecordedPutsEveryLayerBesideBalancedRowsOfTheSameMean) {
  std::map<std::string, int> kinds;
  for (const Cell& cell : make_cells(suite("recorded"))) {
    EXPECT_EQ(cell.shape.layer.model, "gpt-oss-20b");
    const RoutingFigures f = figures(make_problem(cell).routing);
    EXPECT_EQ(f.rows, 2012 * 4);
    EXPECT_EQ(f.max_over_mean > 2, cell.routing.name == "trace") << id(cell);
    ++kinds[cell.routing.name + (cell.shape.layer.projection == Projection::up ? " up" : " down")];
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{
                       {"balanced up", 1}, {"balanced down", 1}, {"trace up", 11}, {"trace down", 11}}));
}

TEST_F(SuiteFile, KeepsTheSeedsThatItNames) {
  const std::string file = write(R"([{"experts": 4, "top_k": 1, "n": 8, "k": 8, "seed": 3},
                                     {"experts": 8, "top_k": 1, "n": 8, "k": 8}])");
  const auto cells = make_cells(typed({"--suite", file, "--seed", "5"}));
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].seed, 3u);
  EXPECT_EQ(cells[1].seed, 5u);
}

TEST_F(SuiteFile, EveryKeyIsItsOption) {
  EXPECT_EQ(read_suite(write(R"([{"experts": 8, "top_k": "2", "n": 64, "k": 32, "projection": "down",
      "op": "dw,dx", "tokens": "4,8", "routing": "uniform,zipf:1.0", "dtype": "fp16", "tp": 2, "ep": 4, "seed": 7,
      "permute_y": true, "topk_weights": true, "accumulate": true, "fp32_dw": true, "sum_slots": true,
      "weight_gradient": true, "gated": "silu", "bias": false}])"))
                .at(0)
                .request,
            typed({"--experts",    "8",
                   "--top-k",      "2",
                   "--n",          "64",
                   "--k",          "32",
                   "--projection", "down",
                   "--op",         "dw,dx",
                   "--tokens",     "4,8",
                   "--routing",    "uniform,zipf:1.0",
                   "--dtype",      "fp16",
                   "--tp",         "2",
                   "--ep",         "4",
                   "--seed",       "7",
                   "--permute-y",  "--topk-weights",
                   "--accumulate", "--fp32-dw",
                   "--sum-slots",  "--weight-gradient",
                   "--gated",      "silu"})
                .request);
}

TEST_F(SuiteFile, PartsFollowEachOtherAndCellsAreTakenOnce) {
  const auto cells = make_cells(suite(write(R"([{"experts": 4, "top_k": 1, "n": 8, "k": 8, "tokens": "2,4"},
                                                {"experts": 4, "top_k": 1, "n": 8, "k": 8, "tokens": "4,1"}])")));
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_EQ(cells[0].tokens, 2);
  EXPECT_EQ(cells[1].tokens, 4);
  EXPECT_EQ(cells[2].tokens, 1);
}

TEST_F(SuiteFile, ErrorsNameThePart) {
  EXPECT_EQ(error(R"([{"experts": 4, "top_k": 1, "n": 8, "k": 8}, {"experts": 4, "top_k": 5, "n": 8, "k": 8}])"),
            "cells[1]: top_k 5 is more than the 4 experts");
  EXPECT_EQ(error("[{}]"), "cells[0]: no layer is given");
  EXPECT_EQ(error(R"([{"experts": 4}])"), "cells[0].top_k: the size is missing");
  EXPECT_EQ(error(R"([{"tokens": "8x"}])"), "cells[0].tokens: '8x' is not a whole number");
  EXPECT_EQ(error(R"([{"op": "fwx"}])"), "cells[0].op: unknown op 'fwx'");
  EXPECT_EQ(error("[]"), "cells: is empty");
  EXPECT_EQ(error("[3]"), "cells[0]: expected an object, found an integer");
  EXPECT_TRUE(error(R"([{"token": "8"}])").starts_with("cells[0].token: ")) << error(R"([{"token": "8"}])");
  EXPECT_TRUE(error(R"([{"suite": "hopper-peers"}])").starts_with("cells[0].suite: "));
  EXPECT_TRUE(error(R"([{"n": 1.5}])").starts_with("cells[0].n: expected ")) << error(R"([{"n": 1.5}])");
  EXPECT_TRUE(error(R"([{"permute_x": 1}])").starts_with("cells[0].permute_x: expected"));
}

TEST_F(SuiteFile, OtherSchemasAreRefused) {
  const std::string path = folder_.write("t.json", R"({"schema": "moetune.table/1"})").string();
  EXPECT_NE(cell_error({"--suite", path}).find("expected 'moetune.suite/1'"), std::string::npos);
}

}  // namespace
}  // namespace moetune
