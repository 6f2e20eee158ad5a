// The results of each layer: winners, times, rates and ratios.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/group.h"
#include "record/table/table.h"
#include "report/report_content.h"

namespace moetune {
namespace {

constexpr const char* kOurs = "ours";
constexpr double kMicro = 1e-6;

Grid winners(const Entries& entries, const DeviceInfo& device) {
  Grid grid =
      titled("tokens>|routing|time>|TFLOP/s>|TB/s>|of roof>|ties>|winner, by what differs from the default|remark");
  for (const Entry* entry : entries) {
    std::vector<std::string> row = {std::to_string(entry->cell.tokens), routing_title(entry->cell)};
    if (!entry->skipped.empty()) {
      row.insert(row.end(), {"", "", "", "", "", "none", entry->skipped});
    } else {
      const double roof = roof_seconds(*entry, device);
      std::string remark = distrust(*entry);
      if (!remark.empty()) remark = "too noisy to trust: " + remark;
      if (!entry->complete) remark += remark.empty() ? "stopped early" : "; stopped early";
      row.insert(row.end(), {time_text(entry->measurement.time), fmt::format("{:.4g}", tflops(*entry)),
                             fmt::format("{:.3g}", terabytes_per_second(*entry)),
                             roof > 0 ? fmt::format("{:.1f} %", 100 * roof / entry->measurement.time.value) : "",
                             std::to_string(entry->ties.size()), winner_text(*entry, device), remark});
    }
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

Grid all_knobs(const Entries& entries) {
  Grid grid{{{"tokens", true}, {"routing"}, {"winner"}}, {}};
  for (const Entry* entry : entries)
    if (entry->skipped.empty())
      grid.rows.push_back({std::to_string(entry->cell.tokens), routing_title(entry->cell), text(entry->candidate)});
  return grid;
}

double rate(const Entry& entry, const Estimate& time) { return entry.flops / time.value / kTera; }

std::string time_and_rate(const Entry& entry, const Estimate& time) {
  return fmt::format("{} ({:.4g})", time_text(time), rate(entry, time));
}

Grid times(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names, bool ratios) {
  Grid grid{{{"tokens", true}, {"routing"}}, {}};
  if (!ratios) grid.columns.push_back({kOurs, true});
  for (const std::string& name : names) grid.columns.push_back({(ratios ? "vs " : "") + name, true});
  for (const Entry* entry : entries) {
    if (!entry->skipped.empty()) continue;
    grid.rows.push_back({std::to_string(entry->cell.tokens), routing_title(entry->cell)});
    std::vector<std::string>& row = grid.rows.back();
    if (!ratios) row.push_back(time_and_rate(*entry, entry->measurement.time));
    for (const std::string& name : names) {
      const Measurement* time = other_time(input, *entry, name);
      const auto found = ratios ? speed_up(input, *entry, name) : std::nullopt;
      row.push_back(found ? ratio_text(*found) : time && !ratios ? time_and_rate(*entry, time->time) : "");
    }
  }
  return grid;
}

// "default: 4096 tokens, zipf:1, 12.3 µs ± 0.1 %, 550 TFLOP/s, 1.02x ± 0.1 % of ours".
std::string point_title(const ReportInput& input, const Entry& entry, const std::string& name) {
  const Measurement* time = name == kOurs ? &entry.measurement : other_time(input, entry, name);
  std::string line = fmt::format("{}: {}, {}, {:.4g} TFLOP/s", name, cell_title(entry.cell), time_text(time->time),
                                 rate(entry, time->time));
  if (const auto found = speed_up(input, entry, name)) line += fmt::format(", {} of ours", ratio_text(*found));
  return line;
}

enum class Quantity { time, rate, ratio };

std::optional<Estimate> value_of(const ReportInput& input, const Entry& entry, const std::string& name,
                                 Quantity quantity) {
  const Measurement* time = name == kOurs ? &entry.measurement : other_time(input, entry, name);
  if (!entry.skipped.empty() || !time || !(time->time.value > 0)) return {};
  if (quantity == Quantity::rate) return entry.flops / kTera / time->time;
  if (quantity == Quantity::time) return 1 / kMicro * time->time;
  return name == kOurs ? Estimate{1, 1, 1} : speed_up(input, entry, name);
}

std::vector<Series> lines(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names,
                          Quantity quantity) {
  std::vector<Series> series;
  for (const std::string& name : names) {
    series.push_back({.style = static_cast<int>(series.size()), .dashed = name == "default", .points = {}});
    for (const Entry* entry : entries)
      if (const auto value = value_of(input, *entry, name, quantity))
        series.back().points.push_back(
            {.x = static_cast<double>(entry->cell.tokens), .y = *value, .title = point_title(input, *entry, name)});
    std::ranges::stable_sort(series.back().points, {}, &ChartPoint::x);
  }
  return series;
}

Figure figure(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names,
              Quantity quantity) {
  static constexpr const char* kTitles[] = {"Time", "TFLOP/s", "Time over ours"};
  static constexpr const char* kLabels[] = {"time, µs", "TFLOP/s", "time over ours"};
  std::set<double> tokens;
  for (const Entry* entry : entries) tokens.insert(static_cast<double>(entry->cell.tokens));
  const auto index = static_cast<size_t>(quantity);
  const std::string caption = fmt::format("{}, {}", kTitles[index], routing_title(entries[0]->cell));
  return {caption, svg({.description = caption + ", over tokens",
                        .x = {"tokens", true, {tokens.begin(), tokens.end()}},
                        .y = {kLabels[index], true},
                        .series = lines(input, entries, names, quantity)})};
}

// A row of charts for each routing and seed.
ReportPart curves(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names) {
  ReportPart part{.legend = {kOurs}};
  part.legend.insert(part.legend.end(), names.begin(), names.end());
  const auto routing_of = [](const Entry* entry) { return std::tie(entry->cell.routing, entry->cell.seed); };
  for (const Entries& group : grouped_by(entries, routing_of))
    for (const Quantity quantity : {Quantity::time, Quantity::rate, Quantity::ratio})
      if (quantity != Quantity::ratio || !names.empty())
        part.figures.push_back(figure(input, group, part.legend, quantity));
  return part;
}

}  // namespace

ReportSection results_section(const ReportInput& input) {
  const std::vector<std::string> names = other_names(input);
  ReportSection section{"Results", {}};
  for (const Entries& entries : by_shape(*input.table)) {
    ReportPart part = curves(input, entries, names);
    part.heading = title(entries[0]->cell.shape);
    part.grid = winners(entries, input.table->device);
    section.parts.push_back(std::move(part));
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
