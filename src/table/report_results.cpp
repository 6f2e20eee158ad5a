// The report's summary, and the results of each layer: winners, times, rates and ratios.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "table/chart.h"
#include "table/pretty.h"
#include "table/report_parts.h"
#include "table/time_text.h"

namespace moetune {
namespace {

constexpr const char* kOurs = "ours";
constexpr double kMicro = 1e-6, kTera = 1e12;
using Entries = std::vector<const Entry*>;

std::string words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return compact_json(value);
  std::string line;
  for (const Json& word : value) line += (line.empty() ? "" : " ") + words(word);
  return line;
}

void add_facts(Grid& grid, const std::string& prefix, const Json& object) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      add_facts(grid, prefix + key + ".", value);
    else
      grid.rows.push_back({prefix + key, words(value)});
  }
}

Grid facts(const ReportInput& input) {
  const DeviceInfo& device = input.table->device;
  Grid grid{{{"fact"}, {"value"}}, {{"device", device.name}, {"regime", std::string(name(input.table->regime))}}};
  if (device.peak_flops > 0) grid.rows.push_back({"peak", fmt::format("{:.4g} TFLOP/s", device.peak_flops / kTera)});
  if (device.peak_bandwidth > 0)
    grid.rows.push_back({"memory bandwidth", fmt::format("{:.3g} TB/s", device.peak_bandwidth / kTera)});
  if (input.journal) {
    const JournalHeader& header = input.journal->header;
    grid.rows.push_back({"strategy", header.strategy});
    grid.rows.push_back({"space", header.space});
    grid.rows.push_back({"search seed", std::to_string(header.seed)});
  }
  add_facts(grid, "", input.table->environment);
  add_facts(grid, "tool.", input.table->tool);
  return grid;
}

// How much faster the winner is: of a rival from paired rounds, of a peer from two independent medians.
struct SpeedUp {
  double factor = 0;
  Interval interval;
};
std::optional<SpeedUp> speed_up(const ReportInput& input, const Entry& entry, const std::string& name) {
  const Measurement& ours = entry.measurement;
  if (!entry.skipped.empty() || !(ours.seconds > 0)) return {};
  if (const Rival* rival = find_rival(entry, name)) {
    if (!(rival->ratio > 0)) return {};
    return SpeedUp{1 / rival->ratio, {1 / rival->ratio_interval.high, 1 / rival->ratio_interval.low}};
  }
  const Measurement* peer = other_time(input, entry, name);
  if (!peer) return {};
  return SpeedUp{peer->seconds / ours.seconds,
                 {peer->interval.low / ours.interval.high, peer->interval.high / ours.interval.low}};
}

// Over the cells that have such a time.
Grid speed_ups(const ReportInput& input) {
  Grid grid{{{"compared with"}, {"speed-up, geometric mean", true}, {"least", true}, {"most", true}, {"cells", true}},
            {}};
  for (const std::string& name : other_names(input)) {
    std::vector<double> factors;
    for (const Entry& entry : input.table->entries)
      if (const auto found = speed_up(input, entry, name)) factors.push_back(found->factor);
    if (factors.empty()) continue;
    grid.rows.push_back({name, factor_text(geometric_mean(factors)), factor_text(*std::ranges::min_element(factors)),
                         factor_text(*std::ranges::max_element(factors)), std::to_string(factors.size())});
  }
  return grid;
}

Grid winners(const Entries& entries, const DeviceInfo& device) {
  Grid grid{{{"tokens", true},
             {"routing"},
             {"time", true},
             {"TFLOP/s", true},
             {"TB/s", true},
             {"of roof", true},
             {"ties", true},
             {"winner"},
             {"remark"}},
            {}};
  for (const Entry* entry : entries) {
    std::vector<std::string> row = {std::to_string(entry->cell.tokens), routing_title(entry->cell)};
    if (!entry->skipped.empty()) {
      row.insert(row.end(), {"", "", "", "", "", "none", entry->skipped});
    } else {
      const double roof = roof_seconds(*entry, device);
      std::string remark = distrust(*entry);
      if (!remark.empty()) remark = "too noisy to trust: " + remark;
      if (!entry->complete) remark += remark.empty() ? "stopped early" : "; stopped early";
      row.insert(row.end(), {time_text(entry->measurement), fmt::format("{:.4g}", tflops(*entry)),
                             fmt::format("{:.3g}", terabytes_per_second(*entry)),
                             roof > 0 ? fmt::format("{:.1f} %", 100 * roof / entry->measurement.seconds) : "",
                             std::to_string(entry->ties.size()), text(entry->candidate), remark});
    }
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

double rate(const Entry& entry, const Measurement& time) { return entry.flops / time.seconds / kTera; }

std::string time_and_rate(const Entry& entry, const Measurement& time) {
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
    if (!ratios) row.push_back(time_and_rate(*entry, entry->measurement));
    for (const std::string& name : names) {
      const Measurement* time = other_time(input, *entry, name);
      const auto found = ratios ? speed_up(input, *entry, name) : std::nullopt;
      row.push_back(found             ? ratio_text(found->factor, found->interval)
                    : time && !ratios ? time_and_rate(*entry, *time)
                                      : "");
    }
  }
  return grid;
}

// "default: 4096 tokens, zipf:1, 12.3 µs ± 0.1 %, 550 TFLOP/s, 1.02x ± 0.1 % of ours".
std::string point_title(const ReportInput& input, const Entry& entry, const std::string& name) {
  const Measurement* time = name == kOurs ? &entry.measurement : other_time(input, entry, name);
  std::string line =
      fmt::format("{}: {}, {}, {:.4g} TFLOP/s", name, cell_title(entry.cell), time_text(*time), rate(entry, *time));
  if (const auto found = speed_up(input, entry, name))
    line += fmt::format(", {} of ours", ratio_text(found->factor, found->interval));
  return line;
}

// What a chart of results shows over tokens.
enum class Quantity { time, rate, ratio };

struct Value {
  double y = 0;
  Interval interval;
};
std::optional<Value> value_of(const ReportInput& input, const Entry& entry, const std::string& name,
                              Quantity quantity) {
  const Measurement* time = name == kOurs ? &entry.measurement : other_time(input, entry, name);
  if (!entry.skipped.empty() || !time || !(time->seconds > 0)) return {};
  const auto rate = [&](double seconds) { return entry.flops / seconds / kTera; };
  if (quantity == Quantity::rate)
    return Value{rate(time->seconds), {rate(time->interval.high), rate(time->interval.low)}};
  if (quantity == Quantity::time)
    return Value{time->seconds / kMicro, {time->interval.low / kMicro, time->interval.high / kMicro}};
  if (name == kOurs) return Value{1, {1, 1}};
  const auto found = speed_up(input, entry, name);
  return found ? std::optional(Value{found->factor, found->interval}) : std::nullopt;
}

std::vector<Series> lines(const ReportInput& input, const Entries& entries, const std::vector<std::string>& names,
                          Quantity quantity) {
  std::vector<Series> series;
  for (const std::string& name : names) {
    series.push_back({.style = static_cast<int>(series.size()), .dashed = name == "default", .points = {}});
    for (const Entry* entry : entries)
      if (const auto value = value_of(input, *entry, name, quantity))
        series.back().points.push_back({.x = static_cast<double>(entry->cell.tokens),
                                        .y = value->y,
                                        .interval = value->interval,
                                        .title = point_title(input, *entry, name)});
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
  std::vector<Entries> routings;
  for (const Entry* entry : entries) {
    const auto same = [&](const Entries& group) {
      return group[0]->cell.routing == entry->cell.routing && group[0]->cell.seed == entry->cell.seed;
    };
    const auto found = std::ranges::find_if(routings, same);
    if (found == routings.end())
      routings.push_back({entry});
    else
      found->push_back(entry);
  }
  for (const Entries& group : routings)
    for (const Quantity quantity : {Quantity::time, Quantity::rate, Quantity::ratio})
      if (quantity != Quantity::ratio || !names.empty())
        part.figures.push_back(figure(input, group, part.legend, quantity));
  return part;
}

}  // namespace

ReportSection summary_section(const ReportInput& input) {
  int64_t won = 0;
  for (const Entry& entry : input.table->entries) won += entry.skipped.empty();
  ReportPart first{.paragraphs = {fmt::format("{} of {} cells have a winner.", won, input.table->entries.size()),
                                  "Times are medians of one launch on cold operands with their 95 % intervals. A "
                                  "speed-up above 1 means that the winner is faster; those over the default and "
                                  "baselines come from paired rounds, those over peers from independent medians."},
                   .grid = speed_ups(input)};
  if (!input.peers)
    first.paragraphs.emplace_back(
        "There are no times of other libraries: give a file of scripts/peers.py with --peers FILE.");
  return {"Summary", {first, {.heading = "Device and run", .grid = facts(input), .folded = true}}};
}

ReportSection results_section(const ReportInput& input) {
  const std::vector<std::string> names = other_names(input);
  ReportSection section{"Results", {}};
  for (const Entries& entries : by_shape(*input.table)) {
    ReportPart part = curves(input, entries, names);
    part.heading = title(entries[0]->cell.shape);
    part.grid = winners(entries, input.table->device);
    section.parts.push_back(std::move(part));
    if (names.empty()) continue;
    section.parts.push_back({.heading = "Speed-ups", .grid = times(input, entries, names, true)});
    section.parts.push_back(
        {.heading = "Times, with TFLOP/s in parentheses", .grid = times(input, entries, names, false), .folded = true});
  }
  if (section.parts.empty()) section.parts.push_back({.paragraphs = {"The table has no entries."}});
  return section;
}

}  // namespace moetune
