// Every cell against the device's peaks, and the clock of every measurement.
#include <fmt/format.h>

#include <algorithm>

#include "record/table/table.h"
#include "report/report_content.h"

namespace moetune {
namespace {

std::string clock_text(const Measurement* time) {
  return time && time->clock_mhz > 0 ? fmt::format("{:.0f} MHz", time->clock_mhz) : "";
}

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

double intensity(const Entry& entry) { return entry.flops / entry.bytes; }
bool is_placed(const Entry& entry) {
  return entry.skipped.empty() && entry.flops > 0 && entry.bytes > 0 && entry.measurement.time.value > 0;
}
bool has_roof(const DeviceInfo& device) { return device.peak_flops > 0 && device.peak_bandwidth > 0; }

// FLOP/s that the device allows at an intensity.
double roof(const DeviceInfo& device, double at) { return std::min(device.peak_flops, at * device.peak_bandwidth); }

// From the least intensity of the cells to the largest, with the ridge between them.
Series roof_line(const DeviceInfo& device, const std::vector<double>& intensities) {
  const double ridge = device.peak_flops / device.peak_bandwidth;
  std::vector<double> corners = {*std::ranges::min_element(intensities), ridge, *std::ranges::max_element(intensities)};
  std::ranges::sort(corners);
  Series series{.style = 1, .markers = false, .points = {}};
  for (const double at : corners) series.points.push_back({.x = at, .y = {roof(device, at) / kTera}});
  return series;
}

// More than 100 % means that operands stayed in the cache, or that the device is faster than its peaks say.
std::vector<std::string> roofline_row(const Entry& entry, const DeviceInfo& device) {
  std::vector<std::string> row = {id(entry.cell), fmt::format("{:.4g}", intensity(entry)),
                                  fmt::format("{:.4g}", tflops(entry))};
  if (!has_roof(device)) return row;
  const double limit = roof(device, intensity(entry));
  row.push_back(fmt::format("{:.4g}", limit / kTera));
  row.push_back(fmt::format("{:.1f} %", 100 * tflops(entry) * kTera / limit));
  row.emplace_back(limit < device.peak_flops ? "memory" : "arithmetic");
  return row;
}

}  // namespace

ReportSection clock_section(const ReportInput& input) {
  ReportPart part{.grid = {{{"cell"}, {kWinner, true}}, {}}};
  std::vector<std::string> names = other_names(input);
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(
        input.table->entries, [&](const Entry& entry) { return !clock_text(other_time(input, entry, name)).empty(); });
  });
  for (const std::string& name : names) part.grid.columns.push_back({name, true});
  part.grid.columns.push_back({"trials", true});
  part.grid.columns.push_back({"other programs", true});
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
  part.paragraphs.emplace_back(series.points.empty() ? "The device did not report its clock."
                                                     : "The median clock of each measurement; trials are those of the "
                                                       "journal. Under 'other programs': their share of the "
                                                       "processors' time.");
  if (!series.points.empty())
    part.figures.push_back(
        {"Clock of each winner over its time", svg({.description = "Clock of each winner over its time",
                                                    .x = {"time, µs", true},
                                                    .y = {.label = "MHz", .from_zero = false},
                                                    .series = {series}})});
  return {"Clocks", {part}};
}

ReportSection roofline_section(const ReportInput& input) {
  const DeviceInfo& device = input.table->device;
  ReportPart part{.grid = {{{"cell"}, {"FLOP per byte", true}, {"TFLOP/s", true}}, {}}};
  if (has_roof(device))
    for (const Column& column : {Column{"roof, TFLOP/s", true}, Column{"of roof", true}, Column{"bound by"}})
      part.grid.columns.push_back(column);
  Series cells{.style = 0, .line = false, .points = {}};
  std::vector<double> intensities;
  for (const Entry& entry : input.table->entries) {
    if (!is_placed(entry)) continue;
    intensities.push_back(intensity(entry));
    part.grid.rows.push_back(roofline_row(entry, device));
    cells.points.push_back({.x = intensities.back(),
                            .y = {tflops(entry)},
                            .title = fmt::format("{}: {:.4g} TFLOP/s, {}", id(entry.cell), tflops(entry),
                                                 time_text(entry.measurement.time))});
  }
  if (intensities.empty()) return {"Roofline", {{.paragraphs = {"No cell has a winner."}}}};
  part.paragraphs.emplace_back(
      "Intensity is the arithmetic of a cell over the bytes that it must read and write at least once.");
  part.legend = {"winner of a cell"};
  Chart chart{"TFLOP/s of each winner over FLOP per byte", {"FLOP per byte", true}, {"TFLOP/s", true}, {cells}};
  if (has_roof(device)) {
    chart.series.push_back(roof_line(device, intensities));
    part.legend.emplace_back("roof");
  } else {
    part.paragraphs.emplace_back("The table has no peaks of the device, so there is no roof.");
  }
  part.figures.push_back({chart.description, svg(chart)});
  return {"Roofline", {part}};
}

}  // namespace moetune
