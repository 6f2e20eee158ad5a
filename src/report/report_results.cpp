// The results of each layer: winners, times, rates and ratios.
#include <fmt/format.h>

#include <tuple>

#include "base/group.h"
#include "record/table/table.h"
#include "report/report_content.h"

namespace moetune {
namespace {

std::vector<Metric> metrics_of(const Entries& entries) {
  return metrics_of(mapped(entries, [](const Entry* entry) { return &entry->measurement; }));
}

Grid winners(const ReportInput& input, const Entries& entries) {
  const DeviceInfo& device = input.table->device;
  const std::vector<Metric> metrics = metrics_of(entries);
  std::string measured;
  for (const Metric metric : metrics) measured += title(metric) + ">|";
  Grid grid = titled("tokens>|routing|time>|" + measured +
                     "TFLOP/s>|TB/s>|of roof>|ties>|winner (knobs that differ from the default)|remark");
  for (const Entry* entry : entries) {
    std::vector<std::string> row;
    if (!entry->skipped.empty()) {
      row.resize(5 + metrics.size());
      row.insert(row.end(), {"none", entry->skipped});
      add_row(grid, entry->cell, row);
      continue;
    }
    const double roof = roof_seconds(*entry, device);
    std::vector<std::string> remarks;
    if (const std::string beaten = beaten_text(input, *entry); !beaten.empty()) remarks.push_back(beaten);
    if (const std::string noise = distrust(*entry); !noise.empty()) remarks.push_back("too noisy to trust: " + noise);
    if (!entry->complete) remarks.emplace_back("stopped early");
    row.push_back(time_text(entry->measurement.time));
    for (const Metric metric : metrics) row.push_back(metric_text(entry->measurement, metric));
    row.insert(row.end(), {fmt::format("{:.4g}", tflops(*entry)), fmt::format("{:.3g}", terabytes_per_second(*entry)),
                           roof > 0 ? fmt::format("{:.1f} %", 100 * roof / entry->measurement.time.value) : "",
                           std::to_string(entry->ties.size()), winner_text(*entry, device),
                           fmt::format("{}", fmt::join(remarks, "; "))});
    add_row(grid, entry->cell, row);
  }
  return grid;
}

Grid all_knobs(const Entries& entries) {
  Grid grid = titled("tokens>|routing|winner");
  for (const Entry* entry : entries)
    if (entry->skipped.empty()) add_row(grid, entry->cell, {text(entry->candidate)});
  return grid;
}

std::string time_and_rate(const Entry& entry, const Estimate& time) {
  return fmt::format("{} ({:.4g})", time_text(time), entry.flops / time.value / kTera);
}

Grid times(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names, bool ratios) {
  Grid grid = titled("tokens>|routing");
  const std::vector<Metric> metrics = ratios ? metrics_of(entries) : std::vector<Metric>();
  if (!ratios) grid.columns.push_back({kWinner, true});
  for (const std::string& name : names) {
    grid.columns.push_back({(ratios ? "vs " : "") + name, true});
    for (const Metric metric : metrics)
      grid.columns.push_back({fmt::format("{} vs {}", info(metric).name, name), true});
  }
  for (const Entry* entry : entries) {
    if (!entry->skipped.empty()) continue;
    std::vector<std::string> row;
    if (!ratios) row.push_back(time_and_rate(*entry, entry->measurement.time));
    for (const std::string& name : names) {
      const Measurement* time = other_time(input, *entry, name);
      const auto found = ratios ? speed_up(input, *entry, name) : std::nullopt;
      row.push_back(found ? ratio_text(*found) : time && !ratios ? time_and_rate(*entry, time->time) : "");
      for (const Metric metric : metrics) {
        const auto better = time ? advantage(metric, entry->measurement, *time) : std::nullopt;
        row.push_back(better ? ratio_text(*better) : "");
      }
    }
    add_row(grid, entry->cell, row);
  }
  return grid;
}

// A chart for each routing and seed.
std::vector<Figure> curves(const ReportInput& input, const Entries& entries) {
  const auto routing_of = [](const Entry* entry) { return std::tie(entry->cell.routing, entry->cell.seed); };
  return mapped(grouped_by(entries, routing_of),
                [&](const Entries& group) { return ratio_figure(input, group, false, routing_title(group[0]->cell)); });
}

}  // namespace

ReportSection results_section(const ReportInput& input) {
  const std::vector<std::string> names = other_names(input);
  ReportSection section{"Results", {}};
  for (const Entries& entries : by_shape(*input.table)) {
    section.parts.push_back(
        {.heading = title(entries[0]->cell.shape), .figures = curves(input, entries), .grid = winners(input, entries)});
    section.parts.push_back({.heading = "Winners with all knobs", .grid = all_knobs(entries), .folded = true});
    if (names.empty()) continue;
    section.parts.push_back({.heading = "Speed-ups", .grid = times(input, entries, names, true)});
    section.parts.push_back(
        {.heading = "Times, with TFLOP/s in parentheses", .grid = times(input, entries, names, false), .folded = true});
  }
  if (section.parts.empty()) section.parts.push_back({.paragraphs = {"The table has no entries."}});
  return section;
}

}  // namespace moetune
