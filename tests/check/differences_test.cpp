// What counts as a difference of two tables, and how sure a change of a time is.
#include "check/differences.h"

#include "record/sample.h"

namespace moetune {
namespace {

// A time with an interval of `percent` to either side, in enough rounds to be trusted.
Measurement timed(double us, double percent) {
  const double seconds = us * 1e-6, part = percent / 100;
  return {.time = {seconds, seconds * (1 - part), seconds * (1 + part), 15}, .launches = 1500};
}

// The winner of entry 0 with this time and no rivals whose ratios could contradict it.
TunedTable table_with(const Measurement& time) {
  TunedTable table = sample::small_table();
  table.entries.resize(1);
  table.entries[0].rivals.clear();
  table.entries[0].measurement = time;
  return table;
}

TEST(Differences, ATableDoesNotDifferFromItself) {
  const TunedTable table = sample::small_table();
  const TableDifferences found = differences(table, table);
  EXPECT_FALSE(found.any());
  EXPECT_TRUE(found.times_compared);
  ASSERT_EQ(found.cells.size(), table.entries.size());
}

TEST(Differences, CellsOfOneTableAloneAreTold) {
  const TunedTable whole = sample::small_table();
  TunedTable part = whole;
  part.entries.erase(part.entries.begin());
  const TableDifferences less = differences(whole, part), more = differences(part, whole);
  EXPECT_TRUE(less.any());
  EXPECT_TRUE(more.any());
  EXPECT_EQ(less.cells[0].old_entry, &whole.entries[0]);
  EXPECT_EQ(less.cells[0].new_entry, nullptr);
  EXPECT_EQ(more.cells.back().old_entry, nullptr);
  EXPECT_EQ(more.cells.back().new_entry, &whole.entries[0]);
}

TEST(Differences, AnotherWinnerIsADifferenceThoughItsTimeIsTheSame) {
  const TunedTable before = table_with(timed(100, 1));
  TunedTable after = before;
  after.entries[0].candidate = sample::mma(32);
  ASSERT_NE(after.entries[0].candidate, before.entries[0].candidate);
  const TableDifferences found = differences(before, after);
  EXPECT_TRUE(found.cells[0].winner_changed);
  EXPECT_EQ(found.cells[0].time, TimeChange::within_noise);
  EXPECT_TRUE(found.any());
}

TEST(Differences, ALostWinnerIsADifference) {
  const TunedTable before = table_with(timed(100, 1));
  TunedTable after = before;
  after.entries[0].skipped = "out of memory";
  EXPECT_TRUE(differences(before, after).cells[0].winner_changed);
  EXPECT_FALSE(differences(before, after).cells[0].time);
  EXPECT_FALSE(differences(after, after).any());
}

TEST(Differences, ATimeDiffersWhereTheIntervalOfTheRatioLeavesOne) {
  const TunedTable before = table_with(timed(100, 1));
  const auto change = [&](double us, double percent) {
    const TunedTable after = table_with(timed(us, percent));
    return *differences(before, after).cells[0].time;
  };
  EXPECT_EQ(change(101, 1), TimeChange::within_noise);
  EXPECT_EQ(change(99, 1), TimeChange::within_noise);
  EXPECT_EQ(change(102, 1), TimeChange::slower);
  EXPECT_EQ(change(98, 1), TimeChange::faster);
  EXPECT_EQ(change(102, 3), TimeChange::within_noise);
  EXPECT_EQ(change(150, 40), TimeChange::untrusted);
}

TEST(Differences, TheIntervalIsThatOfIndependentMedians) {
  const TunedTable before = table_with(timed(100, 3)), after = table_with(timed(200, 4));
  const CellDifference cell = differences(before, after).cells[0];
  EXPECT_DOUBLE_EQ(cell.ratio.value, 2);
  EXPECT_NEAR(cell.ratio.low, 2 * 0.951, 0.005);  // 5 %: 3 % and 4 % at right angles
  EXPECT_NEAR(cell.ratio.high, 2 * 1.051, 0.005);
}

TEST(Differences, OtherRowsAreNotCompared) {
  const TunedTable before = table_with(timed(100, 1));
  TunedTable after = table_with(timed(200, 1));
  std::swap(after.entries[0].m_sizes.front(), after.entries[0].m_sizes.back());
  after.entries[0].m_sizes.front() += 1;
  after.entries[0].m_sizes.back() -= 1;
  EXPECT_EQ(differences(before, after).cells[0].time, TimeChange::other_rows);
}

TEST(Differences, OfUnlikeOriginsNoTimeIsCompared) {
  const TunedTable before = table_with(timed(100, 1));
  const auto compared = [&](const TunedTable& after, const std::string& told) {
    const TableDifferences found = differences(before, after);
    EXPECT_TRUE(found.any());
    EXPECT_TRUE(found.origin.size() == 1 && found.origin[0].starts_with(told)) << found.origin.size();
    EXPECT_EQ(found.cells[0].time.has_value(), found.times_compared);
    return found.times_compared;
  };
  TunedTable other = before;
  other.device.processors += 1;
  EXPECT_FALSE(compared(other, "device: "));
  other = before;
  other.regime = Regime::sustained;
  EXPECT_FALSE(compared(other, "regime: "));
  other = before;
  other.environment["host"] = "node2";
  EXPECT_FALSE(compared(other, "environment, host: \"node1\" in the old table, \"node2\""));
  other = before;
  other.environment["identity"]["driver"] = "590";
  EXPECT_FALSE(compared(other, "environment, identity.driver: "));
}

TEST(Differences, TimesOfOtherKernelsAreCompared) {
  const TunedTable before = table_with(timed(100, 1));
  TunedTable after = table_with(timed(110, 1));
  after.environment["identity"]["kernels"] = "beef";
  const TableDifferences found = differences(before, after);
  EXPECT_TRUE(found.times_compared);
  EXPECT_EQ(found.origin.size(), 1U);
  EXPECT_EQ(found.cells[0].time, TimeChange::slower);
}

}  // namespace
}  // namespace moetune
