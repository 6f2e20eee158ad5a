// From options to cells.
#include "cli/options/cells.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/cell_error.h"
#include "cli/commands/command.h"
#include "temporary_folder.h"

namespace moetune {
namespace {

CellOptions tiny() {
  CellOptions options;
  options.experts = "4", options.top_k = "2", options.n = "64", options.k = "32";
  return options;
}

std::vector<std::string> ids(const CellOptions& options) {
  std::vector<std::string> result;
  for (const Cell& cell : make_cells(options)) result.push_back(id(cell));
  return result;
}

// A trace in a folder of its own, and the routing word for it.
struct TraceFile {
  explicit TraceFile(const std::string& text) : word("trace:" + folder.write("loads.json", text).string()) {}
  TemporaryFolder folder;
  std::string word;
};

TEST(Cells, FewestWordsMakeOneCell) {
  const std::vector<Cell> cells = make_cells(tiny());
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].tokens, 256);
  EXPECT_EQ(cells[0].routing.name, "uniform");
  EXPECT_EQ(cells[0].shape.layer.model, "custom");
  EXPECT_EQ(cells[0].shape.layer.format.word, "bf16");
  EXPECT_EQ(cells[0].shape.layer.n, 64);
  EXPECT_EQ(cells[0].shape.layer.k, 32);
  EXPECT_EQ(cells[0].seed, 0u);
}

TEST(Cells, AreTheProductOfTheLists) {
  CellOptions options = tiny();
  options.tokens = {"1,2", "3"};
  options.routings = {"uniform,zipf:1.0", "single"};
  options.dtypes = {"bf16,fp16"};
  options.tp = "1,2", options.ep = "1,4";
  EXPECT_EQ(make_cells(options).size(), 3u * 3 * 2 * 2 * 2);
}

TEST(Cells, OfEachKindOfLayersAreMade) {
  const TemporaryFolder folder;
  CellOptions options;
  options.models = {folder
                        .write("m.json", R"({"model_type": "x", "hidden_act": "silu", "hidden_size": 64,
    "num_experts": 8, "num_experts_per_tok": 2, "zero_expert_num": 4, "moe_intermediate_size": [32, 16]})")
                        .string()};
  EXPECT_EQ(ids(options), (std::vector<std::string>{"m/up/fwd/bf16/t256/uniform/e8/top2/n64/k64/zero4",
                                                    "m.kind2/up/fwd/bf16/t256/uniform/e8/top2/n32/k64/zero4"}));
  EXPECT_EQ(model_notes(options).size(), 2u);
  const std::string file = options.models[0];
  options.models = {file + "#2"};
  EXPECT_EQ(ids(options), (std::vector<std::string>{"m.kind2/up/fwd/bf16/t256/uniform/e8/top2/n32/k64/zero4"}));
  options.models = {file + "#3"};
  EXPECT_EQ(cell_error(options), file + "#3: there is no kind '3' of expert layers");
  options.models = {file};
  options.intermediate = "48", options.zero_experts = "0";
  EXPECT_EQ(ids(options), (std::vector<std::string>{"m/up/fwd/bf16/t256/uniform/e8/top2/n96/k64"}));
}

TEST(Cells, TokensChangeFastest) {
  CellOptions options = tiny();
  options.tokens = {"1,2"};
  options.routings = {"uniform,single"};
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[1].tokens, 2);
  EXPECT_EQ(cells[1].routing.name, "uniform");
  EXPECT_EQ(cells[2].routing.name, "single");
}

TEST(Cells, DuplicatesAreDropped) {
  CellOptions options = tiny();
  options.tokens = {"8", "8,8"};
  options.routings = {"zipf", "zipf:1.0,zipf:1"};
  EXPECT_EQ(make_cells(options).size(), 1u);
}

TEST(Cells, ModelsGiveTheirLayer) {
  CellOptions options;
  options.models = {"mixtral-8x7b"};
  options.projections = {"up,down"};
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].shape.layer.n, 2 * 14336);
  EXPECT_EQ(cells[0].shape.layer.k, 4096);
  EXPECT_EQ(cells[1].shape.layer.n, 4096);
  EXPECT_EQ(cells[1].shape.layer.k, 14336);
}

TEST(Cells, AProjectionThatIsRepeatedKeepsItsFusions) {
  CellOptions options;
  options.experts = "4", options.top_k = "2", options.hidden = "64", options.intermediate = "32";
  options.projections = {"up,up"};
  options.fusion.permute_y = options.fusion.topk_weights = true;
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_TRUE(cells[0].shape.fusion.permute_y && cells[0].shape.fusion.topk_weights);
}

TEST(Cells, AModelIsScaledDownAndItsIdSaysSo) {
  CellOptions options;
  options.models = {"mixtral-8x7b"};
  options.hidden = "64", options.intermediate = "32", options.experts = "4";
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].shape.layer.experts, 4);
  EXPECT_EQ(cells[0].shape.layer.n, 64);
  EXPECT_EQ(cells[0].shape.layer.k, 64);
  EXPECT_NE(id(cells[0]).find("/e4/n64/k64"), std::string::npos) << id(cells[0]);
}

TEST(Cells, WidthsAloneMakeALayer) {
  CellOptions options;
  options.experts = "4", options.top_k = "1", options.hidden = "64", options.intermediate = "32";
  options.projections = {"up", "down"};
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].shape.layer.n, 64);
  EXPECT_EQ(cells[1].shape.layer.k, 32);
}

TEST(Cells, TensorParallelismDividesTheWidthOfAnExpert) {
  CellOptions options = tiny();
  options.tp = "2";
  EXPECT_EQ(make_cells(options)[0].shape.layer.n, 32);
  options.projections = {"down"};
  EXPECT_EQ(make_cells(options)[0].shape.layer.n, 64);
  EXPECT_EQ(make_cells(options)[0].shape.layer.k, 16);
}

TEST(Cells, FusionsOfALayerGoWhereTheyBelong) {
  CellOptions options;
  options.models = {"mixtral-8x7b"};
  options.projections = {"up,down"};
  options.fusion.permute_x = options.fusion.permute_y = options.fusion.topk_weights = true;
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(text(cells[0].shape.fusion), "permute_x");
  EXPECT_EQ(text(cells[1].shape.fusion), "permute_y+topk_weights");
}

TEST(Cells, WhatBecomesOfDwGoesToDw) {
  CellOptions options = tiny();
  options.ops = {"fwd,dx,dw"}, options.dtypes = {"bf16,fp32"};
  options.fusion.accumulate = options.fusion.fp32_dw = true;
  std::vector<std::string> fusions;
  for (const Cell& cell : make_cells(options)) fusions.push_back(text(cell.shape.fusion));
  EXPECT_EQ(fusions,
            (std::vector<std::string>{"plain", "plain", "plain", "plain", "accumulate+fp32_dw", "accumulate"}));
  options.ops = {"dx"}, options.fusion.fp32_dw = false;
  EXPECT_EQ(cell_error(options), "dx cannot accumulate");
  options.ops = {"fwd,dx"};
  EXPECT_EQ(cell_error(options), "--accumulate belongs to --op dw, which is not listed");
  options.ops = {"dx,dw"}, options.fusion.fp32_dw = true, options.dtypes = {"fp32"};
  EXPECT_EQ(cell_error(options), "--fp32-dw has no meaning for --dtype fp32");
}

TEST(Cells, BothProjectionsOfForwardAreBySlot) {
  CellOptions options;
  options.models = {"mixtral-8x7b"}, options.projections = {"up,down"}, options.ops = {"fwd,dw"};
  options.fusion = {.permute_x = true, .by_slot = true};
  std::vector<std::string> fusions;
  for (const Cell& cell : make_cells(options)) fusions.push_back(text(cell.shape.fusion));
  EXPECT_EQ(fusions, (std::vector<std::string>{"permute_x+by_slot", "permute_x", "by_slot", "plain"}));
}

TEST(Cells, GatesGoToForwardOfUpOrToDxOfDown) {
  CellOptions options;
  options.models = {"mixtral-8x7b"}, options.projections = {"up,down"}, options.ops = {"fwd"};
  options.gated = "gpt-oss", options.fusion = {.interleaved = true, .bias = true};
  std::vector<std::string> fusions;
  const std::vector<Cell> cells = make_cells(options);
  for (const Cell& cell : cells) fusions.push_back(text(cell.shape.fusion));
  EXPECT_EQ(fusions, (std::vector<std::string>{"gpt_oss+interleaved+bias", "bias"}));
  options.ops = {"fwd,dx,dw"}, fusions.clear();
  for (const Cell& cell : make_cells(options)) fusions.push_back(text(cell.shape.fusion));
  EXPECT_EQ(fusions, (std::vector<std::string>{"bias", "plain", "plain", "bias", "gpt_oss+interleaved", "plain"}));
  const std::vector<std::string> words = cell_arguments(cells[0]);
  EXPECT_NE(std::ranges::search(words, std::vector<std::string>{"--gated", "gpt-oss"}).begin(), words.end());
  options.gated = "silu", options.projections = {"up"}, options.fusion = {};
  EXPECT_NE(cell_error(options).find("--gated belongs to fwd of up or, where dx is listed, to dx of down"),
            std::string::npos);
  options.gated = "relu";
  EXPECT_EQ(cell_error(options), "unknown --gated 'relu'");
}

TEST(Cells, WhatBecomesOfDxGoesToDxAndSumsToMatricesByToken) {
  CellOptions options;
  options.models = {"mixtral-8x7b"}, options.projections = {"up,down"}, options.ops = {"fwd,dx,dw"};
  options.fusion.permute_x = options.fusion.permute_y = options.fusion.topk_weights = true;
  options.fusion.sum_slots = options.fusion.weight_gradient = true;
  std::vector<std::string> fusions;
  for (const Cell& cell : make_cells(options)) fusions.push_back(text(cell.shape.fusion));
  EXPECT_EQ(fusions, (std::vector<std::string>{
                         "permute_x", "permute_x+sum_slots", "permute_x", "permute_y+topk_weights+sum_slots",
                         "permute_y+topk_weights+sum_slots+weight_gradient", "permute_y+topk_weights+sum_slots"}));
  options.fusion.permute_y = options.fusion.topk_weights = options.fusion.weight_gradient = false;
  options.ops = {"fwd,dw"};
  EXPECT_EQ(cell_error(options), "--sum-slots needs --permute-y or, for dx, --permute-x");
  options.ops = {"fwd"};
  EXPECT_EQ(cell_error(options), "--sum-slots needs --permute-y or, for dx, --permute-x");
  options.projections = {"up"};
  EXPECT_EQ(cell_error(options), "sum_slots of fwd needs permute_y");
  options.projections = {"up,down"};
  options.fusion.permute_y = options.fusion.topk_weights = options.fusion.weight_gradient = true;
  options.fusion.sum_slots = false;
  EXPECT_EQ(cell_error(options), "fwd has no weight gradient");
  options.ops = {"dx"}, options.projections = {"up"}, options.fusion.permute_y = options.fusion.topk_weights = false;
  EXPECT_EQ(cell_error(options), "weight_gradient needs topk_weights");
}

TEST(Cells, ATraceBecomesACellALayerWithItsRecordedTokens) {
  const TraceFile file(R"({"experts": 4, "top_k": 2, "tokens": 6, "layers": {"a": [6, 3, 2, 1], "b": [3, 3, 3, 3]}})");
  CellOptions options = tiny();
  options.routings = {file.word};
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].routing.layer, "a");
  EXPECT_EQ(cells[1].routing.layer, "b");
  EXPECT_EQ(cells[0].tokens, 6);
  options.tokens = {"12,24"};
  EXPECT_EQ(make_cells(options).size(), 4u);
}

TEST(Cells, ATraceBesideADistributionKeepsItsOwnTokens) {
  const TraceFile file(R"({"experts": 4, "top_k": 2, "tokens": 6, "layers": {"a": [6, 3, 2, 1]}})");
  CellOptions options = tiny();
  options.routings = {"uniform", file.word};
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].tokens, 256);
  EXPECT_EQ(cells[1].tokens, 6);
}

TEST(Cells, PartsOfALayerMissing) {
  CellOptions options = tiny();
  options.top_k = "";
  EXPECT_EQ(cell_error(options), "--top-k is missing");
  options = tiny();
  options.k = "";
  EXPECT_EQ(cell_error(options), "--k is missing");
  options = tiny();
  options.n = options.k = "";
  options.hidden = "64";
  EXPECT_EQ(cell_error(options), "--intermediate is missing");
  EXPECT_EQ(cell_error({}), "no layer is given");
}

TEST(Cells, TwoWaysToSaySizesContradict) {
  CellOptions options = tiny();
  options.hidden = "64";
  EXPECT_EQ(cell_error(options), "--n and --k exclude --hidden and --intermediate");
  options = tiny();
  options.models = {"mixtral-8x7b"};
  EXPECT_EQ(cell_error(options), "--n and --k exclude --model");
}

TEST(Cells, SizesGivenDirectlyAreOfOneProjection) {
  CellOptions options = tiny();
  options.projections = {"up,down"};
  EXPECT_EQ(cell_error(options), "--n and --k are the sizes of one projection");
}

TEST(Cells, WrongNumbersNameTheirOption) {
  const auto with = [](std::string CellOptions::*member, const std::string& value) {
    CellOptions options = tiny();
    options.*member = value;
    return cell_error(options);
  };
  EXPECT_EQ(with(&CellOptions::experts, "-4").substr(0, 9), "--experts");
  EXPECT_EQ(with(&CellOptions::n, "64x"), "--n: '64x' is not a whole number");
  EXPECT_EQ(with(&CellOptions::k, "1e9"), "--k: '1e9' is not a whole number");
  EXPECT_EQ(with(&CellOptions::top_k, "0").substr(0, 7), "--top-k");
  EXPECT_EQ(with(&CellOptions::n, "99999999999999999999").substr(0, 5), "--n: ");
  EXPECT_EQ(with(&CellOptions::n, "16777217"), "--n: 16777217 is outside 1 to 16777216");
  EXPECT_EQ(with(&CellOptions::experts, "65537"), "--experts: 65537 is outside 1 to 65536");
  EXPECT_EQ(with(&CellOptions::experts, "4294967297"), "--experts: 4294967297 is outside 1 to 65536");
  EXPECT_EQ(with(&CellOptions::ep, "65537"), "--ep: 65537 is outside 1 to 65536");
  EXPECT_EQ(with(&CellOptions::top_k, "5"), "top_k 5 is more than the 4 experts");
  EXPECT_EQ(with(&CellOptions::seed, "-1").substr(0, 8), "--seed: ");
  EXPECT_EQ(with(&CellOptions::tp, "3"), "--tp 3 does not divide --n 64");
  CellOptions options = tiny();
  options.tokens = {"0"};
  EXPECT_EQ(cell_error(options), "--tokens: 0 is outside 1 to 268435456");
  options = tiny();
  options.fusion.permute_x = options.fusion.permute_y = true;
  EXPECT_EQ(cell_error(options), "permute_x and permute_y exclude each other");
}

TEST(Cells, SizesWhoseProductOverflows) {
  CellOptions options;
  options.experts = "65536", options.top_k = "1", options.n = "16777216", options.k = "16777216";
  EXPECT_EQ(cell_error(options), "65536 experts of 16777216 x 16777216 are more than 2^46 weights");
  options.n = options.k = "";
  options.hidden = "64", options.intermediate = "16777216";
  EXPECT_EQ(cell_error(options), "n is 33554432, moetune takes at most 16777216");
}

TEST(Cells, EmptyWordsInLists) {
  CellOptions options = tiny();
  options.routings = {"uniform,,zipf"};
  EXPECT_EQ(cell_error(options), "--routing: the list 'uniform,,zipf' has an empty word");
  options.routings = {""};
  EXPECT_EQ(cell_error(options), "--routing: the list is empty");
}

TEST(Cells, TooMany) {
  CellOptions options = tiny();
  options.tokens = {"1-9000"};
  options.routings = {"uniform,single"};
  EXPECT_EQ(cell_error(options), "the lists make over 10000 cells");
}

TEST(Cells, RoutingsThatCannotBeMadeAreFoundEarly) {
  CellOptions options = tiny();
  options.routings = {"grouped:3:1"};
  EXPECT_THROW(require_problems(make_cells(options)), Error);
  options.routings = {"grouped:2:1"};
  EXPECT_NO_THROW(require_problems(make_cells(options)));
}

TEST(Cells, SeedIsInTheId) {
  CellOptions options = tiny();
  options.seed = "7";
  EXPECT_NE(ids(options)[0].find("seed7"), std::string::npos);
}

// What `verify` tells people to type again must be understood as the program itself understands it.
Cell typed(const std::vector<std::string>& arguments) {
  CellOptions options;
  const Command command{.name = "cells", .summary = "", .examples = "", .declare = nullptr};
  const std::vector<Command> commands = {command};
  CommandLine line(commands);
  OptionSet set = line.options(0);
  declare(set, options);
  std::vector<std::string> argv = {"moetune", "cells"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  line.parse(argv);
  const std::vector<Cell> cells = make_cells(options);
  EXPECT_EQ(cells.size(), 1u);
  return cells.at(0);
}

void expect_typed_again(const CellOptions& options) {
  for (Cell cell : make_cells(options)) {
    const Cell again = typed(cell_arguments(cell));
    cell.shape.layer.model = again.shape.layer.model;
    EXPECT_EQ(again, cell) << id(cell);
  }
}

TEST(CellArguments, MakeTheCellAgain) {
  CellOptions options = tiny();
  options.seed = "7", options.tokens = {"3,1000"}, options.dtypes = {"bf16,fp16,fp32"};
  options.routings = {"uniform,zipf:1.25,hot:2:0.5,single"};
  expect_typed_again(options);
  options.fusion.permute_x = true;
  expect_typed_again(options);
  options.fusion.permute_x = false, options.fusion.permute_y = options.fusion.topk_weights = true;
  expect_typed_again(options);
  options.ops = {"fwd,dx,dw"}, options.fusion.accumulate = options.fusion.fp32_dw = true;
  expect_typed_again(options);
}

TEST(CellArguments, TellTheFusionsOfDx) {
  CellOptions options;
  options.models = {"mixtral-8x7b"}, options.projections = {"up,down"}, options.ops = {"fwd,dx,dw"};
  options.fusion.permute_x = options.fusion.permute_y = options.fusion.topk_weights = true;
  options.fusion.sum_slots = options.fusion.weight_gradient = true;
  expect_typed_again(options);
}

TEST(CellArguments, TellWholeSizesOfRanks) {
  CellOptions options;
  options.models = {"qwen3-30b-a3b"}, options.projections = {"up,down"}, options.tp = "2,4", options.ep = "8";
  expect_typed_again(options);
}

TEST(CellArguments, NameRecordings) {
  CellOptions options;
  options.models = {"gpt-oss-20b"}, options.routings = {"trace:gpt-oss-20b#3"};
  expect_typed_again(options);
}

TEST(MakeCells, GiveFp8ResultsToUpAlone) {
  CellOptions options;
  options.models = {"qwen3-30b-a3b"}, options.dtypes = {"fp8"}, options.out_dtypes = {"fp8"};
  options.projections = {"up", "down"}, options.gated = "silu", options.fusion.permute_x = true;
  const std::vector<Cell> cells = make_cells(options);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].shape.layer.format.word, "fp8-block-fp8");
  EXPECT_EQ(cells[1].shape.layer.format.word, "fp8-block");
  EXPECT_NE(id(cells[0]).find("fp8-block-fp8"), std::string::npos);
}

}  // namespace
}  // namespace moetune
