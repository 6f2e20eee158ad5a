// Cells: readable ids that differ where cells do, and JSON.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "error_of.h"
#include "find_model.h"
#include "workload/problem.h"

namespace moetune {
namespace {

Cell preset_cell(int64_t tp = 1, int64_t ep = 1) {
  Cell cell;
  cell.shape.layer = make_layer(find_model("qwen3-30b-a3b"), Projection::up, find_format("bf16"), tp, ep);
  cell.tokens = 256;
  cell.routing = parse_routing("zipf:1.0");
  return cell;
}
Cell custom_cell() {
  Cell cell = preset_cell();
  cell.shape.layer.model = "custom";
  return cell;
}

TEST(CellId, IsShortForAPreset) { EXPECT_EQ(id(preset_cell()), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1"); }
TEST(CellId, NamesWhatDiffersFromItsDefault) {
  Cell cell = preset_cell();
  cell.seed = 3;
  cell.shape.fusion = {.permute_x = false, .permute_y = true, .topk_weights = true};
  EXPECT_EQ(id(cell), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1/permute_y+topk_weights/seed3");
  EXPECT_EQ(id(preset_cell(2, 8)), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1/tp2/ep8");
}
TEST(CellId, NamesOverriddenSizesOfAPreset) {
  Cell cell = preset_cell();
  cell.shape.layer.experts = 64;
  EXPECT_EQ(id(cell), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1/e64");
  cell = preset_cell(2);
  cell.shape.layer.n = 1536;  // as if unsharded
  EXPECT_EQ(id(cell), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1/n1536/tp2");
}
TEST(CellId, NamesAllSizesOfACustomLayer) {
  EXPECT_EQ(id(custom_cell()), "custom/up/fwd/bf16/t256/zipf:1/e128/top8/n1536/k2048");
}
TEST(CellId, NamesSizesWhereThePresetCannotBeSharded) {
  Cell cell = preset_cell();
  cell.shape.layer.tp = 5;
  EXPECT_EQ(id(cell), "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1/e128/top8/n1536/k2048/tp5");
}
TEST(CellId, SetsPathsApart) {
  Cell cell = preset_cell();
  cell.routing = parse_routing("trace:data/loads.json#3");
  EXPECT_EQ(id(cell), "qwen3-30b-a3b/up/fwd/bf16/t256/(trace:data/loads.json#3)");
  // A layer called like a suffix is not the suffix.
  Cell odd = cell;
  odd.routing.layer = "3/seed7";
  cell.seed = 7;
  EXPECT_NE(id(odd), id(cell));
}
TEST(CellId, DiffersForEveryField) {
  std::set<std::string> ids;
  for (const Cell& base : {preset_cell(), custom_cell()}) {
    std::vector<Cell> cells(20, base);
    cells[1].shape.layer.projection = Projection::down;
    cells[2].shape.layer.experts = 130;
    cells[3].shape.layer.top_k = 9;
    cells[4].shape.layer.n += 1;
    cells[5].shape.layer.k += 1;
    cells[6].shape.layer.format = find_format("fp16");
    cells[7].shape.layer.tp = 2;
    cells[8].shape.layer.ep = 2;
    cells[9].shape.op = Op::dx;
    cells[10].shape.fusion.permute_x = true;
    cells[11].shape.fusion.permute_y = true;
    cells[12].shape.fusion = {false, true, true};
    cells[13].tokens = 257;
    cells[14].routing = parse_routing("zipf:1.01");
    cells[15].routing = parse_routing("trace:zipf#1");
    cells[16].seed = 1;
    for (const size_t i : {17, 18, 19}) cells[i].shape.op = Op::dx;
    cells[17].shape.fusion = {.permute_x = true, .sum_slots = true};
    cells[18].shape.fusion = {.permute_x = true};
    cells[19].shape.fusion = {.permute_y = true, .topk_weights = true, .weight_gradient = true};
    for (const Cell& cell : cells) EXPECT_TRUE(ids.insert(id(cell)).second) << id(cell);
  }
}

TEST(CellJson, RoundTrips) {
  Cell cell = preset_cell(2, 4);
  cell.shape.op = Op::dw;
  cell.shape.fusion = {true, false, false};
  cell.seed = std::numeric_limits<uint64_t>::max();
  for (const char* routing : {"zipf:0.1", "hot:4:0.9", "trace:a b/c#d.json#e", "uniform"}) {
    cell.routing = parse_routing(routing);
    const Json json = parse_json(to_json(cell).dump(), "x");
    EXPECT_EQ(cell_from_json(JsonAt(json, "x")), cell) << routing;
  }
}
TEST(CellJson, WritesTheRoutingAsPeopleDo) {
  EXPECT_EQ(to_json(preset_cell())["routing"], "zipf:1");
  EXPECT_EQ(to_json(preset_cell())["model"], "qwen3-30b-a3b");
}
TEST(CellJson, NamesThePlaceOfAFault) {
  const auto refusal = [](const char* key, const Json& value) {
    Json json = to_json(preset_cell());
    json[key] = value;
    return error_of([&] { cell_from_json(JsonAt(json, "j")); });
  };
  EXPECT_EQ(refusal("routing", "zipff:1").what, "j: routing: unknown routing 'zipff'");
  EXPECT_EQ(refusal("routing", "zipff:1").hint, "did you mean 'zipf'?");
  EXPECT_EQ(refusal("tokens", 0).what, "j: tokens: 0 is outside 1 to 33554432");
  EXPECT_EQ(refusal("tokens", "all").what, "j: tokens: expected an integer, found a string");
  EXPECT_EQ(refusal("ep", 3).what, "j: ep 3 does not divide 128 experts");
  EXPECT_EQ(refusal("seed", 1.5).what, "j: seed: expected an integer, found 1.5");
}

}  // namespace
}  // namespace moetune
