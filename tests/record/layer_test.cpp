// Layers of a table: which cells make one, their JSON and its checks, their text, and the table with their pairs.
#include "record/layer.h"

#include <gtest/gtest.h>

#include "export/exporter.h"
#include "record/sample.h"

namespace moetune {
namespace {

Cell up_cell(int64_t tokens = 16, const std::string& routing = "uniform") {
  Cell cell = sample::cell(sample::qwen_up(), tokens, routing);
  cell.shape.fusion = {.permute_x = true, .activation = Activation::silu};
  return cell;
}

Cell down_cell(int64_t tokens = 16, const std::string& routing = "uniform") {
  Cell cell = sample::cell(sample::qwen_down(), tokens, routing);
  cell.shape.fusion = {.permute_y = true, .topk_weights = true};
  return cell;
}

TunedLayer layer(int64_t tokens = 16) {
  return {.up = up_cell(tokens),
          .down = down_cell(tokens),
          .up_candidate = sample::mma(32),
          .down_candidate = sample::mma(64, 64),
          .measurement = sample::measurement(29),
          .up_measurement = sample::measurement(20),
          .down_measurement = sample::measurement(10),
          .rivals = {sample::rival("winners", 30, 29.0 / 30), sample::rival("default", 58, 0.5),
                     sample::rival("cublas-grouped", 43.5, 2.0 / 3)}};
}

TunedTable layered() {
  TunedTable table = sample::table(
      {sample::entry(up_cell(), sample::mma(16), 19.5), sample::entry(down_cell(), sample::mma(64, 64), 10.5)});
  table.layers = {layer()};
  return table;
}

TEST(LayersAmong, AreUpAndDownOfTheSameRows) {
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(layers_among({up_cell(), down_cell()}), (Pairs{{0, 1}}));
  EXPECT_EQ(layers_among({down_cell(16), up_cell(32), down_cell(32), up_cell(16)}), (Pairs{{1, 2}, {3, 0}}));
  EXPECT_TRUE(layers_among({up_cell(16), down_cell(32)}).empty());
  EXPECT_TRUE(layers_among({up_cell(16), down_cell(16, "zipf:1")}).empty());
  Cell seeded = down_cell();
  seeded.seed = 3;
  EXPECT_TRUE(layers_among({up_cell(), seeded}).empty());
  EXPECT_TRUE(layers_among({sample::cell(sample::qwen_up(), 16), down_cell()}).empty()) << "without an activation";
}

TEST(LayerJson, IsReadAsItIsWritten) {
  const TunedTable table = layered();
  const Json json = to_json(table);
  const TunedTable again = table_from_json(JsonAt(json, "t.json"), built_in());
  EXPECT_EQ(pretty_json(to_json(again)), pretty_json(json));
  ASSERT_EQ(again.layers.size(), 1u);
  EXPECT_EQ(again.layers[0].up, table.layers[0].up);
  EXPECT_EQ(again.layers[0].down_candidate, table.layers[0].down_candidate);
  EXPECT_EQ(json["layers"][0]["up"]["cell"], id(up_cell()));
  EXPECT_FALSE(json["layers"][0].contains("untrusted"));
  EXPECT_FALSE(to_json(sample::small_table()).contains("layers"));
}

TEST(LayerJson, ALayerWithoutItsCellsIsNotWritten) {
  TunedTable table = layered();
  table.entries.pop_back();
  EXPECT_FALSE(to_json(table).contains("layers"));
  EXPECT_EQ(find_layer(table, up_cell()), nullptr);
  table.entries.push_back(sample::skipped_entry(down_cell(), "out of memory"));
  EXPECT_FALSE(to_json(table).contains("layers"));
}

TEST(LayerJson, NoisyTimesAreMarked) {
  TunedTable table = layered();
  table.layers[0].measurement.time.high *= 2;
  EXPECT_EQ(to_json(table)["layers"][0]["untrusted"], distrust(table.layers[0]));
  EXPECT_EQ(layer_tables(table, false)[0].grid.rows[3],
            (std::vector<std::string>{"", "", "winners", "30.0 µs ± 1.5 %", "noisy"}));
  table.layers[0].measurement.waited = 0.8852;  // kept as 0.885
  const Json json = to_json(table);
  EXPECT_EQ(to_json(table_from_json(JsonAt(json, "t.json"), built_in())).dump(), json.dump());
}

TEST(LayerJson, RefusesWhatContradictsTheTable) {
  const std::string down = "\"" + id(down_cell()) + "\"";
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"/layers/0/up/cell", "\"none\""}, "no entry with a winner has this id"},
      {{"/layers/0/up/cell", down}, "the two cells are not up and down of one layer"},
      {{"/layers/0/down/candidate/block_m", "1048576"}, "the table's own device cannot run it"},
      {{"/layers/0/rivals/0/ratio", "7"}, "lies outside its interval"}};
  for (const auto& [damage, words] : cases) {
    Json json = to_json(layered());
    json[Json::json_pointer(damage[0])] = Json::parse(damage[1]);
    EXPECT_TRUE(holds(error_of([&] { table_from_json(JsonAt(json, "t.json"), built_in()); }).what, words)) << words;
  }
}

TEST(LayerText, ItsTitleAndRows) {
  EXPECT_EQ(title(layer()),
            "qwen3-30b-a3b ffn, bf16: 128 experts, top 8, hidden 2048, intermediate 768, up permute_x+silu, down "
            "permute_y+topk_weights");
  const std::vector<HeadedTable> tables = layer_tables(layered(), true);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].heading, std::vector<std::string>{title(layer())});
  const std::vector<std::vector<std::string>> rows = {{"16", "uniform", "up, then down", "29.0 µs ± 1.5 %", ""},
                                                      {"", "", "up alone", "20.0 µs ± 1.5 %", ""},
                                                      {"", "", "down alone", "10.0 µs ± 1.5 %", ""},
                                                      {"", "", "winners", "30.0 µs ± 1.5 %", "1.03x ± 1.5 %"},
                                                      {"", "", "default", "58.0 µs ± 1.5 %", "2.00x ± 1.5 %"},
                                                      {"", "", "cublas-grouped", "43.5 µs ± 1.5 %", "1.50x ± 1.5 %"}};
  EXPECT_EQ(tables[0].grid.rows, rows);
  EXPECT_EQ(tables[1].grid.rows[0].back(), text(sample::mma(32)));
  EXPECT_EQ(tables[1].grid.rows[1].back(), text(sample::mma(64, 64)));
}

TEST(LayerText, TheSentenceCountsOtherPairs) {
  TunedTable table = layered();
  EXPECT_EQ(layers_sentence(table), "1 layer tuned as one: in 1 another pair is faster than the two winners.");
  table.layers[0].rivals.erase(table.layers[0].rivals.begin());
  EXPECT_EQ(layers_sentence(table), "1 layer tuned as one: no pair is faster than the two winners.");
  table.layers.clear();
  EXPECT_EQ(layers_sentence(table), "");
}

TEST(WithLayers, PairsAreTheWinnersOfTheirCells) {
  const TunedTable table = with_layers(layered());
  EXPECT_EQ(table.entries[0].candidate, sample::mma(32));
  EXPECT_DOUBLE_EQ(table.entries[0].measurement.time.value, 20e-6);
  EXPECT_TRUE(table.entries[0].rivals.empty());
  EXPECT_EQ(table.entries[1].candidate, sample::mma(64, 64));
  EXPECT_DOUBLE_EQ(table.entries[1].measurement.time.value, 10.5e-6) << "it was the winner, and keeps its time";
  EXPECT_EQ(table.entries[1].rivals.size(), 2u);
}

TEST(WithLayers, AloneLeavesNoOtherCellsOfTheirShapes) {
  TunedTable table = layered();
  table.entries.push_back(sample::entry(up_cell(64), sample::mma(16), 30));
  table.entries.push_back(sample::entry(sample::cell(sample::small_up(), 16), sample::mma(16), 12));
  table = layers_alone(table);
  ASSERT_EQ(table.entries.size(), 3u);
  EXPECT_EQ(table.entries[0].cell, up_cell());
  EXPECT_EQ(table.entries[2].cell, sample::cell(sample::small_up(), 16));
}

TEST(Merge, KeepsLayersWhoseWinnersStay) {
  const TunedTable one = layered();
  TunedTable other = layered();
  other.layers.clear();
  EXPECT_EQ(merge({one, other}, "").table.layers.size(), 1u);
  other.entries[1] = sample::entry(down_cell(), sample::mma(16), 9);
  EXPECT_EQ(merge({one, other}, "first").table.layers.size(), 1u);
  EXPECT_TRUE(merge({one, other}, "last").table.layers.empty());
}

TEST(LayerCsv, RowsOfBothCellsHaveIt) {
  const std::string csv = export_csv(layered()).files[0].text;
  EXPECT_TRUE(holds(csv, ",29,20," + text(sample::mma(32)) + ",")) << csv;
  EXPECT_TRUE(holds(csv, ",29,10," + text(sample::mma(64, 64)) + ",")) << csv;
}

}  // namespace
}  // namespace moetune
