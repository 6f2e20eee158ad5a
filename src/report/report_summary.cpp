// The page's first sentence and chart; what the table holds as a whole, on which device and how it was made; what the
// router did in each cell, and its cost.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <tuple>

#include "base/group.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "record/comparison.h"
#include "record/layer.h"
#include "record/step.h"
#include "record/wrong_results.h"
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

// Over the cells that have such a time and can be trusted.
Grid speed_ups(const ReportInput& input) {
  const std::vector<std::string> names = other_names(input);
  std::vector<CellSpeedups> cells;
  for (const Entry& entry : input.table->entries) {
    if (!distrust(entry).empty()) continue;
    cells.push_back({.cell = entry.cell});
    for (const std::string& name : names)
      if (const auto found = speed_up(input, entry, name)) cells.back().factors.emplace_back(name, found->value);
  }
  return grid_of(compare(cells));
}

// Experts by their rows: none, 1, 2 to 3, 4 to 7, ...
struct RowClass {
  int64_t low = 0, high = 0, experts = 0;
};

std::vector<RowClass> row_classes(const std::vector<int32_t>& m_sizes) {
  std::vector<RowClass> classes;
  for (const int32_t rows : m_sizes) {
    const auto index = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(rows)));
    while (classes.size() <= index) {
      const int64_t low = classes.empty() ? 0 : int64_t{1} << (classes.size() - 1);
      classes.push_back({low, std::max(int64_t{0}, 2 * low - 1), 0});
    }
    ++classes[index].experts;
  }
  return classes;
}

std::string label_of(const RowClass& rows) {
  return rows.low == rows.high ? std::to_string(rows.low) : fmt::format("{}-{}", rows.low, rows.high);
}

// "0: 43, 1: 46, 2-3: 39".
std::string rows_text(const std::vector<RowClass>& classes) {
  std::string line;
  for (const RowClass& rows : classes)
    if (rows.experts > 0) line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", label_of(rows), rows.experts);
  return line;
}

// The rows of the experts of one layer and token count, a line for each routing. Projections share their rows.
Figure load_figure(const Entries& entries) {
  const Layer& layer = entries[0]->cell.shape.layer;
  const int64_t tokens = entries[0]->cell.tokens;
  const std::string caption = fmt::format("{} experts, top {}: {}", layer.experts, layer.top_k,
                                          fmt::format("{} {}", tokens, tokens == 1 ? "token" : "tokens"));
  Chart chart{.description = "Rows of experts, " + caption,
              .x = {"experts, those with the most rows first"},
              .y = {"rows of an expert"}};
  Figure figure{.caption = caption, .svg = ""};
  std::vector<std::vector<int32_t>> drawn;
  for (const Entry* entry : entries) {
    if (contains(drawn, entry->m_sizes)) continue;
    Series line{.style = static_cast<int>(drawn.size()), .markers = false};
    drawn.push_back(entry->m_sizes);
    std::vector<int32_t> rows = entry->m_sizes;
    std::ranges::sort(rows, std::greater{});
    for (size_t i = 0; i < rows.size(); ++i)
      line.points.push_back({static_cast<double>(i + 1), {static_cast<double>(rows[i])}});
    figure.legend.push_back({line.style, routing_title(entry->cell)});
    chart.series.push_back(std::move(line));
  }
  figure.svg = svg(chart);
  return figure;
}

constexpr size_t kNamed = 3;  // cells or models, in a sentence

}  // namespace

ReportPart opening(const ReportInput& input) {
  if (!input.table) return {};
  const TunedTable& table = *input.table;
  Entries won, trusted;
  std::vector<std::string> models, ops, beaten, facts;
  for (const Entry* entry : all_entries(table)) {
    if (!entry->skipped.empty()) continue;
    won.push_back(entry);
    models.push_back(entry->cell.shape.layer.model), ops.emplace_back(name(entry->cell.shape.op));
    if (distrust(*entry).empty()) trusted.push_back(entry);
    if (const std::string text = beaten_text(input, *entry); !text.empty())
      beaten.push_back(fmt::format("{} ({})", id(entry->cell), text));
  }
  if (won.empty()) return {};
  for (const char* name : {kFastest, kDefault})
    if (const std::vector<double> ratios = ratios_of(input, trusted, name); !ratios.empty())
      facts.push_back(fmt::format("{} as fast as the {}", range_text(ratios), name));
  const std::string date = table.tool.value("date", table.updates.empty() ? "" : table.updates.back().date);
  std::string first = fmt::format("{} of {} ({}) on {} ({}{}{})", counted(won.size(), "cell"), some_of(models, kNamed),
                                  some_of(ops, kNamed), table.device.name, name(table.regime), date.empty() ? "" : ", ",
                                  date.substr(0, date.find('T')));
  if (!facts.empty())
    first += fmt::format(": the {} {}", won.size() == 1 ? "winner is" : "winners are", fmt::join(facts, " and "));
  ReportPart part{.paragraphs = {first + "."}};
  if (!beaten.empty()) part.paragraphs.push_back(fmt::format("Not the fastest known: {}.", some_of(beaten, kNamed)));
  if (const size_t noisy = won.size() - trusted.size(); noisy > 0)
    part.paragraphs.push_back(fmt::format("{} of {} too noisy to trust and not counted here.", noisy,
                                          counted(won.size(), "cell") + (noisy == 1 ? " is" : " are")));
  if (facts.empty()) return part;
  part.paragraphs.emplace_back(
      "Charts show times over the winner's: 1 is the winner, 2 takes twice as long. An arrow is beyond the scale. A "
      "roof is the least time that the device's peak arithmetic or memory bandwidth allows; below 0.5 it is not "
      "drawn.");
  part.figures.push_back(
      ratio_figure(input, trusted, true,
                   "Geometric mean over the cells with equal token counts, with bars from the least to the most"));
  return part;
}

ReportSection summary_section(const ReportInput& input) {
  int64_t won = 0, noisy = 0;
  for (const Entry& entry : input.table->entries)
    won += entry.skipped.empty(), noisy += entry.skipped.empty() && !distrust(entry).empty();
  const std::string without = fmt::format(", of which {} too noisy to trust and left out of the speed-ups",
                                          noisy == 1 ? "one is" : fmt::format("{} are", noisy));
  ReportPart first{.paragraphs = {fmt::format("{} of {} cells have a winner{}.", won, input.table->entries.size(),
                                              noisy > 0 ? without : ""),
                                  "Times are medians of one launch on cold operands with their 95 % intervals. A "
                                  "speed-up above 1 means that the winner is faster; speed-ups over the "
                                  "default and the baselines come from paired rounds, speed-ups over peers from "
                                  "independent medians."},
                   .grid = speed_ups(input)};
  if (input.journal)
    if (const auto wrong = wrong_results(verified_candidates(*input.table, *input.journal)))
      first.paragraphs.insert(first.paragraphs.begin() + 1, sentence(*wrong));
  if (!input.peers)
    first.paragraphs.emplace_back(
        "There are no times of other libraries: give a file of scripts/peers.py with --peers FILE.");
  ReportSection section{"Summary", {std::move(first)}};
  std::string before;
  for (const std::vector<HeadedTable>& tables :
       {layer_tables(*input.table, true), step_tables(times_with_peers(input))})
    for (const auto& [heading, grid] : tables) {
      section.parts.push_back({.heading = heading[0] == before ? "" : heading[0], .grid = grid});
      before = heading[0];
    }
  section.parts.push_back({.heading = "Device and run", .grid = facts(input), .folded = true});
  return section;
}

ReportSection routing_section(const ReportInput& input) {
  ReportPart part{
      .paragraphs = {"Occupancy is the share of real rows in the winner's tiles; the others are padding. Loss is "
                     "how much longer the winner takes than the winner for balanced rows, or noisy where one of "
                     "the two times can't be trusted."},
      .grid = titled("cell|rows>|active experts>|most rows>|max/mean>|CV>|effective experts>|occupancy>|loss>|"
                     "experts by rows")};
  for (const Entry& entry : input.table->entries) {
    const RoutingFigures& f = entry.figures;
    part.grid.rows.push_back({id(entry.cell), std::to_string(f.rows),
                              fmt::format("{} of {}", f.active_experts, entry.m_sizes.size()),
                              std::to_string(f.max_rows), fmt::format("{:.2f}", f.max_over_mean),
                              fmt::format("{:.2f}", f.cv), fmt::format("{:.1f}", f.effective_experts),
                              entry.skipped.empty() ? fmt::format("{:.1f} %", 100 * entry.occupancy) : "",
                              loss_to_balanced(*input.table, entry), rows_text(row_classes(entry.m_sizes))});
  }
  const auto of_one_chart = [](const Entry* entry) {
    const Layer& layer = entry->cell.shape.layer;
    return std::tuple(layer.experts, layer.top_k, layer.ep, entry->cell.tokens);
  };
  part.figures = mapped(grouped_by(all_entries(*input.table), of_one_chart), load_figure);
  return {"Routing", {part}};
}

}  // namespace moetune
