// Points of measured cells, and levels that are new.
#include "check/outputs/check_history.h"

#include <fmt/format.h>

namespace moetune {

HistoryRun history_run(const CheckResult& result, const CheckRun& run) {
  HistoryRun line{.date = run.timestamp, .commit = run.commit, .device = run.device, .regime = run.regime};
  for (const CellFinding& finding : result.findings)
    if (was_measured(finding))
      line.points.push_back({.name = finding_id(finding),
                             .finding = std::string(name(finding.finding)),
                             .time = finding.now.time,
                             .control = finding.control,
                             .control_seconds = finding.control_now_seconds});
  return line;
}

std::vector<std::string> recent_changes(const std::vector<HistoryRun>& runs) {
  constexpr size_t kRecent = 10;  // runs
  std::vector<std::string> changes;
  for (const HistorySeries& series : series_of(runs))
    if (const size_t last = series.levels.size() - 1;
        last > 0 && series.levels[last].first + kRecent >= series.times.size())
      changes.push_back(fmt::format("{}: {}", series.name, change_text(series, last)));
  return changes;
}

}  // namespace moetune
