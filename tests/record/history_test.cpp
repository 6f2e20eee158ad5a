// Histories of checks: damaged lines, and levels of many runs.
#include "record/history.h"

#include <gtest/gtest.h>

#include "base/system/file.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace moetune {
namespace {

HistoryRun run_of(double us, const std::string& name = "cell") {
  return {.date = "2026-11-27T10:00:00",
          .commit = "a1",
          .device = "GPU",
          .regime = "burst",
          .points = {{.name = name, .finding = "equivalent", .time = {us * 1e-6, us * 0.99e-6, us * 1.01e-6}}}};
}

TEST(History, LeavesOutDamagedLinesAndNamesThem) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "past.jsonl").string();
  append_history(file, run_of(10));
  write_atomic(file, read_text(file) + "{\"schema\": \"moetune.hist\n" + "{\"schema\": \"moetune.history/1\"}\n");
  append_history(file, run_of(11));
  const History history = read_history(file);
  ASSERT_EQ(history.runs.size(), 2U);
  EXPECT_NEAR(history.runs[1].points.at(0).time.value, 11e-6, 1e-12);
  ASSERT_EQ(history.damaged.size(), 2U);
  for (const size_t i : {0U, 1U}) EXPECT_EQ(history.damaged[i].place().line, i + 2) << history.damaged[i].what();
  write_atomic(file, "no history\n");
  EXPECT_EQ(error_of([&] { read_history(file); }).exit, Exit::request);
}

// Quadratic work would take minutes.
TEST(History, FindsTheChangesOfTwentyThousandRuns) {
  std::vector<HistoryRun> runs;
  for (int i = 0; i < 20000; ++i) {
    const double level = i < 7000 ? 10 : i < 15000 ? 12 : 11;
    runs.push_back(run_of(level * (1 + 0.01 * ((i * 7) % 13 - 6) / 6.0)));
    runs.back().points[0].control = "loop", runs.back().points[0].control_seconds = 1e-3;
  }
  const std::vector<HistorySeries> series = series_of(runs);
  ASSERT_EQ(series.size(), 1U);
  EXPECT_EQ(mapped(series[0].levels, &HistoryLevel::first), (std::vector<size_t>{0, 7000, 15000}));
  EXPECT_EQ(change_text(series[0], 1), "+20.0 % since 2026-11-27T10:00:00, commit a1");
}

}  // namespace
}  // namespace moetune
