// The clocks at which everything was timed.
#include <fmt/format.h>

#include <algorithm>

#include "record/time_text.h"
#include "report/chart.h"
#include "report/report_content.h"

namespace moetune {
namespace {

std::string clock_text(const Measurement* time) {
  return time && time->clock_mhz > 0 ? fmt::format("{:.0f} MHz", time->clock_mhz) : "";
}

// The least and the highest clock of a cell's blocks.
std::string clock_range(const ReportInput& input, const Cell& cell) {
  double low = 0, high = 0;
  for (const Trial* trial : timed_trials(input, cell)) {
    const double clock = trial->measurement.clock_mhz;
    if (!(clock > 0)) continue;
    low = low > 0 ? std::min(low, clock) : clock;
    high = std::max(high, clock);
  }
  if (low == high) return low > 0 ? fmt::format("{:.0f} MHz", low) : "";
  return fmt::format("{:.0f} to {:.0f} MHz", low, high);
}

}  // namespace

ReportSection clock_section(const ReportInput& input) {
  ReportPart part{.grid = {{{"cell"}, {"ours", true}}, {}}};
  std::vector<std::string> names = other_names(input);
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(
        input.table->entries, [&](const Entry& entry) { return !clock_text(other_time(input, entry, name)).empty(); });
  });
  for (const std::string& name : names) part.grid.columns.push_back({name, true});
  part.grid.columns.push_back({"trials", true});
  part.grid.columns.push_back({"taken by others", true});
  Series series{.style = 0, .line = false, .points = {}};
  for (const Entry& entry : input.table->entries) {
    if (!entry.skipped.empty()) continue;
    const Measurement& ours = entry.measurement;
    std::vector<std::string> row = {id(entry.cell), clock_text(&ours)};
    for (const std::string& name : names) row.push_back(clock_text(other_time(input, entry, name)));
    row.push_back(clock_range(input, entry.cell));
    row.push_back(ours.waited > 0 ? fmt::format("{:.1f} %", 100 * ours.waited) : "");
    part.grid.rows.push_back(std::move(row));
    if (ours.clock_mhz > 0)
      series.points.push_back(
          {.x = ours.time.value * 1e6,
           .y = {ours.clock_mhz},
           .title = fmt::format("{}: {}, {}", id(entry.cell), clock_text(&ours), time_text(ours.time))});
  }
  part.paragraphs.emplace_back(series.points.empty()
                                   ? "The device did not tell its clock."
                                   : "The median clock while each was timed; trials are those of the journal.");
  if (!series.points.empty())
    part.figures.push_back(
        {"Clock of each winner over its time", svg({.description = "Clock of each winner over its time",
                                                    .x = {"time, µs", true},
                                                    .y = {.label = "MHz", .from_zero = false},
                                                    .series = {series}})});
  return {"Clocks", {part}};
}

}  // namespace moetune
