// What the table holds as a whole, on which device, and how it was made.
#include <fmt/format.h>

#include <algorithm>

#include "table/pretty.h"
#include "table/report_parts.h"
#include "table/time_text.h"

namespace moetune {
namespace {

constexpr double kTera = 1e12;

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

}  // namespace moetune
