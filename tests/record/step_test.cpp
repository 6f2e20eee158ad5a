// Which cells make a training step, and its sums.
#include "record/step.h"
#include "built_in.h"
#include "export/exporter.h"
#include "record/sample.h"

namespace moetune {
namespace {

CellTimes timed(const Layer& layer, Op op, double us, Fusion fusion = {}, int64_t tokens = 64) {
  Cell cell = sample::cell(layer, tokens);
  cell.shape.op = op, cell.shape.fusion = fusion;
  const auto time = [](const char* contender, double time_us) {
    return ContenderTime{contender, {time_us * 1e-6, 0.9e-6 * time_us, 1.2e-6 * time_us}};
  };
  return {.cell = cell, .times = {time("loop", 4 * us), time("default", 2 * us), time("winners", us)}};
}

// Times are 1, 2, 4 of up, 8, 16, 32 of down: each sum has its own value.
std::vector<CellTimes> six(Fusion up = {}, Fusion down = {}, int64_t tokens = 64) {
  std::vector<CellTimes> cells;
  double us = 1;
  for (const auto& [layer, fusion] : {std::pair{sample::qwen_up(), up}, {sample::qwen_down(), down}})
    for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
      Fusion of_op = fusion;
      if (op != Op::dw) of_op.accumulate = of_op.fp32_dw = false;
      cells.push_back(timed(layer, op, us, of_op, tokens));
      us *= 2;
    }
  return cells;
}

std::vector<CellTimes> operator+(std::vector<CellTimes> left, const std::vector<CellTimes>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

constexpr Fusion kGathered = {.permute_x = true}, kScattered = {.permute_y = true},
                 kWeighted = {.permute_y = true, .topk_weights = true};

// "permute_x|permute_y 64" a step.
std::vector<std::string> pairs(const std::vector<CellTimes>& cells) {
  std::vector<std::string> result;
  for (const Step& step : training_steps(cells)) {
    const Cell &up = cells[step.cells[2]].cell, &down = cells[step.cells[5]].cell;
    result.push_back(fmt::format("{}|{} {}", text(up.shape.fusion), text(down.shape.fusion), up.tokens));
  }
  return result;
}
using Pairs = std::vector<std::string>;

TEST(Step, SumsTheSixGemmsOfEachContender) {
  const std::vector<Step> steps = training_steps(six());
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].cells, (std::array<size_t, 6>{0, 1, 2, 3, 4, 5}));
  ASSERT_EQ(steps[0].sums.size(), 3u);
  for (const auto& [i, contender, us] :
       {std::tuple{size_t{0}, "winners", 63.0}, {size_t{1}, "default", 126.0}, {size_t{2}, "loop", 252.0}}) {
    const ContenderTime& sum = steps[0].sums[i];
    EXPECT_EQ(sum.contender, contender);
    EXPECT_NEAR(sum.time.value, us * 1e-6, 1e-12);
    EXPECT_NEAR(sum.time.low, 0.9 * us * 1e-6, 1e-12);
    EXPECT_NEAR(sum.time.high, 1.2 * us * 1e-6, 1e-12);
    EXPECT_EQ(find_sum(steps[0], contender), &sum);
  }
  EXPECT_EQ(find_sum(steps[0], "torch"), nullptr);
  const Estimate speedup = step_speedup(steps[0], steps[0].sums[2]);
  EXPECT_NEAR(speedup.value, 4, 1e-9);
  EXPECT_NEAR(speedup.low, 3, 1e-9);
  EXPECT_NEAR(speedup.high, 16.0 / 3, 1e-9);
}

TEST(Step, WeightsPairedSpeedupsByTheWinnersTime) {
  std::vector<CellTimes> cells = six();
  for (CellTimes& cell : cells) {
    const double us = cell.times[2].time.value * 1e6;
    cell.times[0].of_winner = us > 20 ? Estimate{5, 4.9, 5.1} : Estimate{3, 2, 4};
    cell.times[2].of_winner = Estimate{1, 1, 1};
  }
  const Step step = training_steps(cells).at(0);
  const Estimate loop = step_speedup(step, *find_sum(step, "loop"));
  EXPECT_NEAR(loop.value, (31 * 3.0 + 32 * 5.0) / 63, 1e-9);
  EXPECT_NEAR(loop.low, (31 * 2.0 + 32 * 4.9) / 63, 1e-9);
  EXPECT_NEAR(loop.high, (31 * 4.0 + 32 * 5.1) / 63, 1e-9);
  EXPECT_NEAR(step_speedup(step, *find_sum(step, "default")).low, 1.5, 1e-9);  // of other rounds
  cells[3].times[0].of_winner.reset();
  const Step other = training_steps(cells).at(0);
  EXPECT_NEAR(step_speedup(other, *find_sum(other, "loop")).low, 3, 1e-9);
}

TEST(Step, NeedsAllSixCellsInAnyOrder) {
  for (size_t missing = 0; missing < 6; ++missing) {
    std::vector<CellTimes> cells = six();
    cells.erase(cells.begin() + static_cast<int64_t>(missing));
    EXPECT_TRUE(training_steps(cells).empty()) << missing;
  }
  std::vector<CellTimes> cells = six();
  std::reverse(cells.begin(), cells.end());
  const std::vector<Step> steps = training_steps(cells);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].cells, (std::array<size_t, 6>{5, 4, 3, 2, 1, 0}));
  EXPECT_NEAR(steps[0].sums[0].time.value, 63e-6, 1e-12);
}

TEST(Step, HasNoSumOfAContenderThatLacksACell) {
  for (size_t lacking = 0; lacking < 6; ++lacking) {
    std::vector<CellTimes> cells = six();
    cells[lacking].times.erase(cells[lacking].times.begin());
    const std::vector<Step> steps = training_steps(cells);
    ASSERT_EQ(steps.size(), 1u);
    ASSERT_EQ(steps[0].sums.size(), 2u) << lacking;
    EXPECT_EQ(find_sum(steps[0], "loop"), nullptr);
    cells[lacking].times.clear();
    EXPECT_TRUE(training_steps(cells).empty());
  }
}

TEST(Step, IsOfOneProblem) {
  const auto differs = [](auto change) {
    std::vector<CellTimes> cells = six();
    for (size_t i = 3; i < 6; ++i) change(cells[i].cell);
    return training_steps(cells).empty();
  };
  EXPECT_FALSE(differs([](Cell&) {}));
  EXPECT_TRUE(differs([](Cell& cell) { cell.tokens = 65; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.seed = 1; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.routing = parse_routing("zipf:1"); }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.model = "other"; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.format = find_format("fp16"); }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.top_k = 4; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.ep = 2; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.tp = 2; }));
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.n = 4096; }));  // hidden of up is 2048
  EXPECT_TRUE(differs([](Cell& cell) { cell.shape.layer.k = 767; }));
  EXPECT_FALSE(differs([](Cell& cell) { cell.shape.layer.k = 1536; }));  // not gated
}

TEST(Step, OfSeveralTokensAreSeveral) {
  EXPECT_EQ(pairs(six({}, {}, 8) + six({}, {}, 16)), (Pairs{"plain|plain 8", "plain|plain 16"}));
}

TEST(Step, PairsPlainWithPlainAndPermutedWithPermuted) {
  EXPECT_EQ(pairs(six() + six(kGathered, kScattered)), (Pairs{"plain|plain 64", "permute_x|permute_y 64"}));
  std::vector<CellTimes> weighted = six({}, kWeighted);
  weighted.erase(weighted.begin(), weighted.begin() + 3);
  EXPECT_EQ(pairs(six(kGathered, kScattered) + weighted),
            (Pairs{"permute_x|permute_y 64", "permute_x|permute_y+topk_weights 64"}));
  EXPECT_EQ(pairs(six(kGathered)), (Pairs{"permute_x|plain 64"}));
  EXPECT_EQ(pairs(six({}, kWeighted)), (Pairs{"plain|permute_y+topk_weights 64"}));
}

TEST(Step, PairsDwThatAccumulateOrAreFp32) {
  const Fusion added = {.accumulate = true}, wide = {.fp32_dw = true};
  EXPECT_EQ(pairs(six(added, added)), (Pairs{"accumulate|accumulate 64"}));
  EXPECT_EQ(pairs(six(added, wide)), Pairs{});
  EXPECT_EQ(pairs(six() + six(wide, wide)), (Pairs{"plain|plain 64", "fp32_dw|fp32_dw 64"}));
}

TEST(Step, TakesFusionsOfDxAlone) {
  std::vector<CellTimes> cells = six(kGathered, kWeighted);
  Fusion& down = cells[4].cell.shape.fusion;
  cells[1].cell.shape.fusion.sum_slots = down.weight_gradient = down.interleaved = true;
  down.activation = Activation::silu;
  const std::vector<Step> steps = training_steps(cells);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].cells, (std::array<size_t, 6>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(holds(step_tables(cells).at(0).heading[0], "weight_gradient+silu+interleaved"));
  Fusion by_token = kWeighted, summing = kGathered;
  summing.sum_slots = by_token.sum_slots = true;
  EXPECT_EQ(pairs(six(kGathered, by_token)), (Pairs{"permute_x|permute_y+topk_weights+sum_slots 64"}));
  std::vector<CellTimes> added_apart = six(kGathered, by_token);
  added_apart[3].cell.shape.fusion = kWeighted;  // fwd of down
  EXPECT_EQ(training_steps(added_apart).size(), 1u);
  EXPECT_EQ(
      training_steps(six(kGathered, kWeighted) + std::vector{timed(sample::qwen_up(), Op::dx, 1, summing)}).size(), 2u);
}

TEST(Step, HasATableForEachFusion) {
  Fusion summing = kGathered;
  summing.sum_slots = true;
  const auto cells = six(kGathered, kWeighted) + std::vector{timed(sample::qwen_up(), Op::dx, 1, summing)};
  const std::vector<HeadedTable> tables = step_tables(cells);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_NE(tables[0].heading, tables[1].heading);
  EXPECT_TRUE(holds(tables[1].heading[0], ", up permute_x+sum_slots, down permute_y+topk_weights"));
  EXPECT_EQ(tables[0].grid.rows[0].back(), "");  // the winners themselves
}

TunedTable table_of_a_step() {
  std::vector<Entry> entries;
  for (const CellTimes& cell : six(kGathered, kWeighted))
    entries.push_back(sample::entry(cell.cell, sample::mma(64), cell.times[2].time.value * 1e6));
  return sample::table(entries);
}

TEST(Step, OfATableStandsInItsJsonAndItsCsv) {
  TunedTable table = table_of_a_step();
  const Json json = to_json(table);
  ASSERT_EQ(json["training_steps"].size(), 1u);
  const Json& step = json["training_steps"][0];
  EXPECT_EQ(step["cells"].size(), 6u);
  EXPECT_EQ(step["cells"][5], "qwen3-30b-a3b/down/dw/bf16/t64/uniform/permute_y+topk_weights");
  EXPECT_EQ(step["sums"][0], (Json{{"contender", "winners"},
                                   {"sum_us", 63.0},
                                   {"low_us", 62.37},
                                   {"high_us", 64.26},
                                   {"speedup", 1.0},
                                   {"speedup_low", 1.0},
                                   {"speedup_high", 1.0}}));
  EXPECT_EQ(step["sums"][2]["contender"], "cublas-loop");
  EXPECT_EQ(step["sums"][2]["speedup"], 2.0);
  EXPECT_FALSE(step.contains("untrusted"));
  EXPECT_EQ(to_json(table_from_json(JsonAt(json, "table"), built_in())), json);
  EXPECT_TRUE(holds(export_csv(table).files[0].text, ",63,78.75,126\n"));
  table.entries.pop_back();
  EXPECT_FALSE(to_json(table).contains("training_steps"));
  EXPECT_TRUE(holds(export_csv(table).files[0].text, ",,,\n"));
}

TEST(Step, OfANoisyCellIsUntrusted) {
  TunedTable table = table_of_a_step();
  table.entries[4].measurement.time.high *= 2;
  const Json step = to_json(table)["training_steps"][0];
  EXPECT_TRUE(holds(step["untrusted"].get<std::string>(), "qwen3-30b-a3b/down/dx/bf16/t64/uniform/permute_y")) << step;
}

}  // namespace
}  // namespace moetune
