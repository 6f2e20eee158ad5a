// Options of cells as filters of a table.
#include "cli/options/contenders.h"

#include <gtest/gtest.h>

#include "base/error.h"

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

// A model's two projections and a layer of its own; the last cell is the odd one in all else.
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

// The numbers of the cells that are left.
std::vector<size_t> picked(const CellOptions& options) {
  const TunedTable whole = table();
  TunedTable some = whole;
  pick_entries(some, "t.json", options);
  std::vector<size_t> numbers;
  for (const Entry& entry : some.entries)
    for (size_t i = 0; i < whole.entries.size(); ++i)
      if (whole.entries[i].cell == entry.cell) numbers.push_back(i);
  return numbers;
}

using Numbers = std::vector<size_t>;

TEST(Pick, NoOptionPicksAll) { EXPECT_EQ(picked({}), (Numbers{0, 1, 2, 3})); }

TEST(Pick, ListsPickAnyOfTheirWords) {
  EXPECT_EQ(picked({.tokens = {"8"}}), (Numbers{0, 1}));
  EXPECT_EQ(picked({.tokens = {"1-16*2", "64"}}), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(picked({.projections = {"down"}}), (Numbers{1}));
  EXPECT_EQ(picked({.routings = {"zipf:1.0,single"}}), (Numbers{2}));
  EXPECT_EQ(picked({.ops = {"dx"}}), (Numbers{3}));
  EXPECT_EQ(picked({.dtypes = {"bf16"}}), (Numbers{0, 1, 2}));
}

TEST(Pick, OptionsHoldTogether) { EXPECT_EQ(picked({.projections = {"up"}, .tokens = {"8,16"}}), (Numbers{0, 2})); }

TEST(Pick, ModelsByTheTablesNameOrAnAlias) {
  EXPECT_EQ(picked({.models = {"Qwen3-30B-A3B"}}), (Numbers{0, 1, 2}));
  EXPECT_EQ(picked({.models = {"my layer"}}), (Numbers{3}));
}

TEST(Pick, ARecordingWithoutALayerStandsForAll) {
  EXPECT_EQ(picked({.routings = {"trace:loads.json"}}), (Numbers{3}));
  EXPECT_EQ(picked({.routings = {"trace:loads.json#3"}}), (Numbers{3}));
}

TEST(Pick, SizesAreThoseOfTheOptions) {
  EXPECT_EQ(picked({.n = "256"}), (Numbers{0, 2, 3}));  // of the last, tp has taken half
  EXPECT_EQ(picked({.k = "128"}), (Numbers{1}));
  EXPECT_EQ(picked({.hidden = "64"}), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(picked({.intermediate = "128"}), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(picked({.intermediate = "256"}), (Numbers{0, 2, 3}));
  EXPECT_EQ(picked({.tp = "2"}), (Numbers{3}));
  EXPECT_EQ(picked({.ep = "1,2"}), (Numbers{0, 1, 2}));
  EXPECT_EQ(picked({.experts = "8", .top_k = "2"}), (Numbers{0, 1, 2, 3}));
}

TEST(Pick, SeedsAndFusions) {
  EXPECT_EQ(picked({.seed = "5"}), (Numbers{3}));
  EXPECT_EQ(picked({.seed = "0"}), (Numbers{0, 1, 2}));
  EXPECT_EQ(picked({.fusion = {.permute_x = true}}), (Numbers{3}));
}

Error pick_error(const CellOptions& options) {
  try {
    picked(options);
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::yes, "no error");
}

TEST(Pick, NothingLeftIsAnAnswerThatTellsWhatThereIs) {
  const Error alone = pick_error({.tokens = {"12"}, .routings = {"single"}});
  EXPECT_EQ(alone.exit(), Exit::no);
  EXPECT_STREQ(alone.what(),
               "t.json: no cell has --tokens 12 (the table has 8, 16, 64) or --routing single (the table has uniform, "
               "zipf:1, trace:loads.json#3)");
  const Error together = pick_error({.projections = {"down"}, .tokens = {"16"}});
  EXPECT_EQ(together.exit(), Exit::no);
  EXPECT_STREQ(together.what(), "t.json: no cell has all of --projection down, --tokens 16");
  EXPECT_STREQ(pick_error({.fusion = {.permute_y = true}}).what(),
               "t.json: no cell has --permute-y (the table has plain, permute_x)");
  EXPECT_EQ(pick_error({.suite = "hard"}).exit(), Exit::no);
}

TEST(Pick, WordsThatCannotBeReadAreWrongRequests) {
  for (const CellOptions& options : {CellOptions{.models = {"qwen3-30b-a3"}}, CellOptions{.tokens = {"8x"}},
                                     CellOptions{.routings = {"zipff"}}, CellOptions{.tokens = {"8,"}}})
    EXPECT_EQ(pick_error(options).exit(), Exit::request) << pick_error(options).what();
  TunedTable empty;
  EXPECT_THROW(pick_entries(empty, "t.json", {}), Error);
}

}  // namespace
}  // namespace moetune
