// Tables merged, and what happens where they disagree.
#include <functional>

#include "built_in.h"
#include "record/sample.h"

namespace moetune {
namespace {

using sample::cell;
using sample::entry;
using sample::mma;
using sample::small_up;
using sample::table;

Entry at(int64_t tokens, double us, int block_m = 64) { return entry(cell(small_up(), tokens), mma(block_m), us); }

TEST(Merge, DisjointTablesKeepTheirOrder) {
  const Merged merged = merge({table({at(64, 2), at(16, 1)}), table({at(256, 3)})}, "");
  ASSERT_EQ(merged.table.entries.size(), 3u);
  EXPECT_EQ(merged.table.entries[0].cell.tokens, 64);
  EXPECT_EQ(merged.table.entries[1].cell.tokens, 16);
  EXPECT_EQ(merged.table.entries[2].cell.tokens, 256);
  EXPECT_TRUE(merged.conflicts.empty());
  EXPECT_EQ(merged.table.device, sample::h200());
  EXPECT_EQ(merged.table.tool, table().tool);
}

TEST(Merge, EqualEntriesAreNoConflict) {
  const Merged merged = merge({table({at(16, 1)}), table({at(16, 1)})}, "");
  EXPECT_EQ(merged.table.entries.size(), 1u);
  EXPECT_TRUE(merged.conflicts.empty());
  const Json json = to_json(sample::small_table());
  const Merged with_itself = merge({sample::small_table(), table_from_json(JsonAt(json, "t"), built_in())}, "");
  EXPECT_TRUE(with_itself.conflicts.empty()) << "written and read";
  EXPECT_EQ(to_json(with_itself.table), json);
}

TEST(Merge, ADifferenceIsAConflictNamedOnce) {
  const Merged merged = merge({table({at(16, 2)}), table({at(16, 1)}), table({at(16, 3)})}, "");
  EXPECT_EQ(merged.conflicts, std::vector<std::string>{"custom/up/fwd/bf16/t16/uniform/e4/top2/n64/k32"});
  ASSERT_EQ(merged.table.entries.size(), 1u);
  EXPECT_DOUBLE_EQ(merged.table.entries[0].measurement.time.value, 2e-6);
}

TEST(Merge, PreferencesChoose) {
  const std::vector<TunedTable> tables = {table({at(16, 2), at(32, 9)}), table({at(16, 1)}), table({at(16, 3)})};
  EXPECT_DOUBLE_EQ(merge(tables, "first").table.entries[0].measurement.time.value, 2e-6);
  EXPECT_DOUBLE_EQ(merge(tables, "fastest").table.entries[0].measurement.time.value, 1e-6);
  EXPECT_DOUBLE_EQ(merge(tables, "last").table.entries[0].measurement.time.value, 3e-6);
  EXPECT_EQ(merge(tables, "last").conflicts.size(), 1u);
  EXPECT_EQ(merge(tables, "last").table.entries[0].cell.tokens, 16);
}

TEST(Merge, AWinnerIsFasterThanNone) {
  const Entry none = sample::skipped_entry(cell(small_up(), 16), "out of memory");
  EXPECT_TRUE(merge({table({none}), table({at(16, 5)})}, "fastest").table.entries[0].skipped.empty());
  EXPECT_TRUE(merge({table({at(16, 5)}), table({none})}, "fastest").table.entries[0].skipped.empty());
}

TEST(Merge, AnotherSeedIsAnotherCell) {
  const Merged merged = merge({table({at(16, 1)}), table({entry(cell(small_up(), 16, "uniform", 1), mma(64), 2)})}, "");
  EXPECT_EQ(merged.table.entries.size(), 2u);
  EXPECT_TRUE(merged.conflicts.empty());
}

// Of a sweep of three cells, a shard holds these.
TunedTable shard(std::vector<Entry> entries) {
  TunedTable part = table(std::move(entries));
  for (const int64_t tokens : {16, 32, 64}) part.sweep.push_back(id(at(tokens, 1).cell));
  return part;
}

TEST(MergeOfShards, HasTheOrderOfTheSweep) {
  const TunedTable merged = merge({shard({at(64, 3)}), shard({}), shard({at(16, 1), at(32, 2)})}, "").table;
  EXPECT_EQ(to_json(merged), to_json(table({at(16, 1), at(32, 2), at(64, 3)})));
  EXPECT_TRUE(merged.sweep.empty());
}

TEST(MergeOfShards, KeepsTheSweepWhileCellsAreMissing) {
  const TunedTable some = merge({shard({at(64, 3)}), shard({at(16, 1)})}, "").table;
  EXPECT_EQ(some.sweep, shard({}).sweep);
  EXPECT_EQ(to_json(merge({shard({at(32, 2)}), some}, "").table), to_json(table({at(16, 1), at(32, 2), at(64, 3)})));
}

TEST(MergeOfShards, OtherTablesFollowTheSweep) {
  const TunedTable merged = merge({shard({at(64, 3)}), table({at(8, 1), at(16, 1), at(32, 2)})}, "").table;
  EXPECT_EQ(to_json(merged), to_json(table({at(16, 1), at(32, 2), at(64, 3), at(8, 1)})));
}

TEST(Sweep, IsReadAsItIsWritten) {
  const Json json = to_json(shard({at(32, 2)}));
  EXPECT_EQ(table_from_json(JsonAt(json, "t"), built_in()).sweep, shard({}).sweep);
  EXPECT_FALSE(to_json(table({at(32, 2)})).contains("sweep"));
}

TEST(Sweep, ThatContradictsTheEntriesIsRefused) {
  Json json = to_json(shard({at(32, 2)}));
  json["sweep"].erase(1);
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what,
            "t: sweep: entries[0] is not in it: " + id(at(32, 2).cell));
  json["sweep"][1] = json["sweep"][0];
  EXPECT_TRUE(holds(error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what, "sweep[1]"));
}

TEST(Merge, OtherDevicesDontMerge) {
  TunedTable other = table({at(32, 1)});
  other.device.name = "NVIDIA A100-SXM4-80GB";
  other.device.processors = 108;
  const auto fault = error_of([&] { merge({table({at(16, 1)}), other}, "first"); });
  EXPECT_EQ(fault.exit, Exit::machine);
  EXPECT_EQ(
      fault.what,
      "tables of different devices don't merge: NVIDIA H200 with 132 SMs, and NVIDIA A100-SXM4-80GB with 108 SMs");
  EXPECT_EQ(fault.hint, "keep tables of each device apart");
}

TEST(Merge, RequiresTheSameKernelsAndRegime) {
  const auto with = [](const std::function<void(TunedTable&)>& change) {
    TunedTable other = table({at(32, 1)});
    change(other);
    return merge({table({at(16, 1)}), other}, "").table;
  };
  EXPECT_EQ(with([](TunedTable& other) { other.device.id = "GPU-5678"; }).entries.size(), 2u);
  EXPECT_EQ(with([](TunedTable& other) { other.environment["host"] = "node2"; }).environment["host"], "node1");
  const auto fault =
      error_of([&] { with([](TunedTable& other) { other.environment["identity"]["kernels"] = "beef"; }); });
  EXPECT_EQ(fault.exit, Exit::machine);
  EXPECT_TRUE(holds(fault.what, "the environments don't compare")) << fault.what;
  EXPECT_TRUE(holds(fault.what, "beef")) << fault.what;
  EXPECT_EQ(error_of([&] { with([](TunedTable& other) { other.regime = Regime::sustained; }); }).what,
            "the regimes burst and sustained don't compare");
  EXPECT_EQ(error_of([] { merge({}, ""); }).what, "nothing to merge");
}

TEST(Merge, AnUnknownPreferenceNamesTheNearest) {
  const auto fault = error_of([] { merge({table()}, "fastet"); });
  EXPECT_EQ(fault.what, "unknown preference 'fastet'");
  EXPECT_EQ(fault.hint, "did you mean 'fastest'?");
}

}  // namespace
}  // namespace moetune
