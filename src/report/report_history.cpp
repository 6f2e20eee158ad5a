// The times of past checks: a chart a kernel, with the levels between changes and their noise bands.
#include <fmt/format.h>

#include "base/group.h"
#include "base/text/units.h"
#include "record/history.h"
#include "report/report_content.h"

namespace moetune {
namespace {

// Lines from run to run along each level: its median, or an end of its band.
Series level_line(const HistorySeries& series, int style, double Estimate::*end) {
  Series line{.style = style, .markers = false, .dashed = end != &Estimate::value};
  for (size_t i = 0; i < series.levels.size(); ++i) {
    const HistoryLevel& level = series.levels[i];
    const size_t next = i + 1 < series.levels.size() ? series.levels[i + 1].first : series.times.size();
    for (const size_t at : {level.first, next - 1})
      line.points.push_back({.x = static_cast<double>(at + 1), .y = {1e6 * (level.time.*end)}});
  }
  return line;
}

Figure figure_of(const HistorySeries& series) {
  Chart chart{.description = "times of " + series.name + " by run",
              .x = {.label = "run", .from_zero = false},
              .y = {.label = "µs", .from_zero = false},
              .series = {{.style = 0, .line = false}}};
  for (size_t i = 0; i < series.times.size(); ++i) {
    const HistoryRun& run = *series.runs[i];
    chart.series[0].points.push_back(
        {.x = static_cast<double>(i + 1),
         .y = 1e6 * series.times[i],
         .title = fmt::format("{}, {} {}", format_time(series.times[i].value), run.date, run.commit)});
  }
  chart.series.push_back(level_line(series, 1, &Estimate::value));
  for (const auto end : {&Estimate::low, &Estimate::high}) chart.series.push_back(level_line(series, 2, end));
  return {.caption = series.name,
          .svg = svg(chart),
          .legend = {{0, "a run's median"}, {1, "level"}, {2, "noise band: two standard deviations of a run"}}};
}

// The series of runs on one device, in one regime.
ReportPart part_of(const std::vector<HistoryRun>& runs) {
  ReportPart part{.heading = fmt::format("{}, {}", runs[0].device, runs[0].regime),
                  .grid = {{{"cell"}, {"runs", true}, {"now", true}, {"noise", true}, {"changes"}}, {}}};
  for (const HistorySeries& series : series_of(runs)) {
    std::string changes;
    for (size_t i = 1; i < series.levels.size(); ++i) changes += (i > 1 ? "; " : "") + change_text(series, i);
    const Estimate& now = series.levels.back().time;
    part.grid.rows.push_back({series.name, std::to_string(series.times.size()), format_time(now.value),
                              fmt::format("± {:.1f} %", 100 * log_half_width(now)), changes});
    part.figures.push_back(figure_of(series));
  }
  return part;
}

}  // namespace

ReportSection history_section(const ReportInput& input) {
  ReportSection section{"History", {}};
  for (const auto& runs : grouped_by(*input.history, [](const HistoryRun& run) { return run.device + run.regime; }))
    section.parts.push_back(part_of(runs));
  section.parts[0].paragraphs.push_back(
      "Times of past checks. Where every run has the same control, they are scaled by how much longer it took than its "
      "median. A change is a level that at least three runs have and that noise does not explain.");
  return section;
}

}  // namespace moetune
