// Options of cells as filters of a table.
#include "cli/options/contenders.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cli/typed_cells.h"

namespace moetune {
namespace {

Entry entry(const std::string& model, Projection projection, int64_t tokens, const std::string& routing) {
  Entry entry;
  Layer& layer = entry.cell.shape.layer;
  layer.model = model, layer.projection = projection;
  layer.experts = 8, layer.top_k = 2;
  layer.n = projection == Projection::up ? 256 : 64, layer.k = projection == Projection::up ? 64 : 128;
  entry.cell.tokens = tokens, entry.cell.routing = parse_routing(routing);
  return entry;
}

// Two projections of a model, and another layer, whose cell differs from the others in everything.
TunedTable table() {
  TunedTable table;
  table.entries = {entry("qwen3-30b-a3b", Projection::up, 8, "uniform"),
                   entry("qwen3-30b-a3b", Projection::down, 8, "uniform"),
                   entry("qwen3-30b-a3b", Projection::up, 16, "zipf:1"),
                   entry("my layer", Projection::up, 64, "trace:loads.json#3")};
  Cell& odd = table.entries[3].cell;
  odd.shape.op = Op::dx;
  odd.shape.fusion.permute_x = true;
  odd.shape.layer.format = find_format("fp16");
  odd.shape.layer.tp = 2, odd.shape.layer.ep = 4, odd.shape.layer.n = 128;
  odd.seed = 5;
  return table;
}

using Numbers = std::vector<size_t>;
using Words = std::vector<std::string>;

// The numbers of the cells that are left.
Numbers picked(const Words& words) {
  const TunedTable whole = table();
  TunedTable some = whole;
  pick_entries(some, "t.json", typed(words));
  Numbers numbers;
  for (const Entry& entry : some.entries)
    for (size_t i = 0; i < whole.entries.size(); ++i)
      if (whole.entries[i].cell == entry.cell) numbers.push_back(i);
  return numbers;
}

TEST(Pick, OptionsPickCells) {
  const std::vector<std::pair<Words, Numbers>> cases = {
      {{}, {0, 1, 2, 3}},
      {{"--tokens", "8"}, {0, 1}},
      {{"--tokens", "1-16*2", "--tokens", "64"}, {0, 1, 2, 3}},
      {{"--projection", "down"}, {1}},
      {{"--routing", "zipf:1.0,single"}, {2}},
      {{"--op", "dx"}, {3}},
      {{"--dtype", "bf16"}, {0, 1, 2}},
      {{"--projection", "up", "--tokens", "8,16"}, {0, 2}},  // both hold
      // By the table's name or an alias.
      {{"--model", "Qwen3-30B-A3B"}, {0, 1, 2}},
      {{"--model", "my layer"}, {3}},
      // A recording without a layer stands for all.
      {{"--routing", "trace:loads.json"}, {3}},
      {{"--routing", "trace:loads.json#3"}, {3}},
      // Sizes are those of the options: of the last cell, tp has taken half.
      {{"--n", "256"}, {0, 2, 3}},
      {{"--k", "128"}, {1}},
      {{"--hidden", "64"}, {0, 1, 2, 3}},
      {{"--intermediate", "128"}, {0, 1, 2, 3}},
      {{"--intermediate", "256"}, {0, 2, 3}},
      {{"--tp", "2"}, {3}},
      {{"--ep", "1,2"}, {0, 1, 2}},
      {{"--experts", "8", "--top-k", "2"}, {0, 1, 2, 3}},
      {{"--seed", "5"}, {3}},
      {{"--seed", "0"}, {0, 1, 2}},
      {{"--permute-x"}, {3}}};
  for (const auto& [words, numbers] : cases) EXPECT_EQ(picked(words), numbers) << fmt::format("{}", words);
}

TEST(Pick, NothingLeftIsAnAnswerThatNamesWhatThereIs) {
  const auto refusal = [](const Words& words) {
    const Caught caught = error_of([&] { picked(words); });
    EXPECT_EQ(caught.exit, Exit::no);
    return caught.what;
  };
  EXPECT_EQ(refusal({"--tokens", "12", "--routing", "single"}),
            "t.json: no cell has --tokens 12 (the table has 8, 16, 64) or --routing single (the table has uniform, "
            "zipf:1, trace:loads.json#3)");
  EXPECT_EQ(refusal({"--projection", "down", "--tokens", "16"}),
            "t.json: no cell has all of --projection down, --tokens 16");
  EXPECT_EQ(refusal({"--permute-y"}), "t.json: no cell has --permute-y (the table has plain, permute_x)");
  EXPECT_TRUE(refusal({"--suite", "hard"}).starts_with("t.json: no cell has --suite hard"));
}

TEST(Pick, WordsThatCannotBeReadAreWrongRequests) {
  EXPECT_EQ(error_of([] { picked({"--model", "qwen3-30b-a3"}); }).exit, Exit::request);
  TunedTable empty;
  EXPECT_EQ(error_of([&] { pick_entries(empty, "t.json", {}); }).exit, Exit::request);
}

}  // namespace
}  // namespace moetune
