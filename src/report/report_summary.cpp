// What the table holds as a whole, on which device, and how it was made.
#include <fmt/format.h>

#include <algorithm>

#include "base/pretty.h"
#include "record/comparison.h"
#include "record/step.h"
#include "report/report_content.h"

namespace moetune {
namespace {

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

std::vector<CellTimes> times_with_peers(const ReportInput& input) {
  std::vector<CellTimes> cells = cell_times(*input.table);
  if (!input.peers) return cells;
  for (CellTimes& one : cells)
    if (!one.times.empty())
      for (const PeerTime& peer : input.peers->of(id(one.cell)))
        one.times.push_back({peer.peer, peer.measurement.time});
  return cells;
}

// Over the cells that have such a time.
Grid speed_ups(const ReportInput& input) {
  const std::vector<std::string> names = other_names(input);
  std::vector<CellSpeedups> cells;
  for (const Entry& entry : input.table->entries) {
    cells.push_back({.cell = entry.cell, .factors = {}});
    for (const std::string& name : names)
      if (const auto found = speed_up(input, entry, name)) cells.back().factors.emplace_back(name, found->value);
  }
  return grid_of(compare(cells));
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
  ReportSection section{"Summary", {std::move(first)}};
  if (Grid steps = steps_grid(times_with_peers(input)); !steps.rows.empty())
    section.parts.push_back({.heading = "Training steps", .grid = std::move(steps)});
  section.parts.push_back({.heading = "Device and run", .grid = facts(input), .folded = true});
  return section;
}

}  // namespace moetune
