// `check --update`: which times of a table are replaced.
#include "check/update_table.h"

#include <gtest/gtest.h>

#include "built_in.h"
#include "check/check.h"
#include "checks.h"
#include "error_of.h"

namespace moetune {
namespace {

using fake::Script;

TunedTable two_cells() {
  return tuned({.baselines = {{"loop", 300e-6}, {"grouped", 200e-6}}}, {fake::small_cell(16), fake::small_cell(64)});
}

CheckResult checked(const TunedTable& table, Script script) {
  fake::FakeBackend backend(std::move(script));
  CheckRequest request;
  request.all_rivals = true;
  return check(table, backend, request, {}, std::atomic<bool>{false});
}

Script slower() { return slowed(1.2, {.baselines = {{"loop", 330e-6}, {"grouped", 220e-6}}}); }

Update update() { return {.date = "2026-11-23T01:26:06", .reason = "driver 580", .tool = fake::kTool, .cells = {}}; }

const Json kHere = {{"identity", {{"fake", "1"}}}};

TEST(UpdateTable, HasTheTimesOfNowAndTheReason) {
  TunedTable table = two_cells();
  table.entries[0].code = "0123456789ab";
  const CheckResult result = checked(table, slower());
  const UpdatedTable updated = update_table(table, result, kHere, update());
  EXPECT_TRUE(updated.kept.empty());
  const Entry& entry = updated.table.entries[0];
  EXPECT_NEAR(entry.measurement.time.value, 120e-6, 1e-9);
  EXPECT_EQ(entry.candidate, table.entries[0].candidate);
  EXPECT_EQ(entry.code, "") << "the fake has no hash of the kernel that was measured now";
  ASSERT_EQ(entry.rivals.size(), 3U);
  EXPECT_EQ(entry.rivals[0].name, "default");
  EXPECT_NEAR(find_rival(entry, "loop")->ratio.value, 120.0 / 330, 1e-6);
  EXPECT_NEAR(find_rival(entry, "grouped")->measurement.time.value, 220e-6, 1e-9);
  ASSERT_EQ(updated.table.updates.size(), 1U);
  EXPECT_EQ(updated.table.updates[0].reason, "driver 580");
  EXPECT_EQ(updated.table.updates[0].cells.size(), 2U);
  // What was a regression is the baseline now.
  for (const CellFinding& finding : checked(updated.table, slower()).findings)
    EXPECT_EQ(finding.finding, Finding::equivalent);
}

TEST(UpdateTable, ReadsAsItWasWritten) {
  const TunedTable table = update_table(two_cells(), checked(two_cells(), slower()), kHere, update()).table;
  const Json json = to_json(table);
  EXPECT_EQ(json["updates"][0]["reason"], "driver 580");
  EXPECT_EQ(to_json(table_from_json(JsonAt(json, "t.json"), built_in())), json);
  EXPECT_EQ(merge({table, table}, "").table.updates.size(), 1U);
}

TEST(UpdateTable, ARivalThatDoesNotRunHereGoes) {
  Script alone = slower();
  alone.baselines = {{"loop", 330e-6}};
  const TunedTable table = two_cells();
  const Entry entry = update_table(table, checked(table, alone), kHere, update()).table.entries[0];
  EXPECT_EQ(find_rival(entry, "grouped"), nullptr);
  EXPECT_NE(find_rival(entry, "loop"), nullptr);
}

TEST(UpdateTable, AWrongWinnerKeepsItsTimes) {
  const TunedTable table = two_cells();
  CheckResult result = checked(table, slower());
  result.findings[1].rounds = 0;
  result.findings[1].reason = "7 of 2048 elements differ";
  const UpdatedTable updated = update_table(table, result, kHere, update());
  ASSERT_EQ(updated.kept.size(), 1U);
  EXPECT_EQ(updated.kept[0], id(table.entries[1].cell) + ": 7 of 2048 elements differ");
  EXPECT_EQ(updated.table.entries[1].measurement.time.value, table.entries[1].measurement.time.value);
  EXPECT_EQ(updated.table.updates[0].cells, std::vector<std::string>{id(table.entries[0].cell)});
}

TEST(UpdateTable, TimesOfABusyMachineAreNoBaseline) {
  Script busy = slower();
  busy.waited = 0.5;
  const TunedTable table = two_cells();
  const UpdatedTable updated = update_table(table, checked(table, busy), kHere, update());
  EXPECT_EQ(updated.kept.size(), 2U);
  EXPECT_TRUE(updated.table.updates.empty());
}

TEST(UpdateTable, TimesOfTwoEnvironmentsDoNotMix) {
  const TunedTable table = two_cells();
  CheckResult result = checked(table, slower());
  const Json other = {{"identity", {{"fake", "2"}}}};
  EXPECT_EQ(update_table(table, result, other, update()).table.environment, other);
  result.findings.pop_back();
  const Caught caught = error_of([&] { update_table(table, result, other, update()); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_TRUE(holds(caught.what, "1 of the table's cells keep their times")) << caught.what;
  EXPECT_TRUE(holds(caught.hint, "update all cells together")) << caught.hint;
}

}  // namespace
}  // namespace moetune
