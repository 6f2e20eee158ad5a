// What knobs cost, from the trials of the journal: times over block_m and block_n, and the cost of a knob's other
// values.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "report/report_content.h"
#include "variant/variant.h"

namespace moetune {
namespace {

using Trials = std::vector<const Trial*>;

struct Best {
  double seconds = 0;
  int64_t candidates = 0;
  void add(const Trial& trial) {
    seconds = candidates == 0 ? trial.measurement.time.value : std::min(seconds, trial.measurement.time.value);
    ++candidates;
  }
};

const Trial* fastest(const Trials& trials) {
  const auto found =
      std::ranges::min_element(trials, {}, [](const Trial* trial) { return trial->measurement.time.value; });
  return found == trials.end() ? nullptr : *found;
}

int shade_of(double loss) {
  int shade = 0;
  for (const double limit : {0.0, 0.01, 0.03, 0.1, 0.3}) shade += loss > limit;
  return shade;
}

// Of the candidates of the fastest one's variant; no rows where they have only one tile.
std::optional<ReportPart> heat_map(const Trials& trials, const Cell& cell) {
  const Trial* winner = fastest(trials);
  if (!winner) return {};
  std::map<std::pair<int, int>, Best> tiles;
  std::set<int> ms, ns;
  for (const Trial* trial : trials) {
    if (!same_variant(trial->candidate, winner->candidate)) continue;
    const auto m = block_m_of(trial->candidate), n = block_n_of(trial->candidate);
    if (!m || !n) return {};
    tiles[{*m, *n}].add(*trial), ms.insert(*m), ns.insert(*n);
  }
  if (tiles.size() < 2) return {};
  ReportPart part{.heading = fmt::format("{} ({})", id(cell), winner->candidate.variant->name),
                  .grid = {{{"block_m", true}}, {}}};
  for (const int n : ns) part.grid.columns.push_back({fmt::format("block_n {}", n), true});
  for (const int m : ms) {
    part.grid.rows.push_back({std::to_string(m)});
    part.shades.push_back({-1});
    for (const int n : ns) {
      const auto found = tiles.find({m, n});
      const bool timed = found != tiles.end();
      const double loss = timed ? found->second.seconds / winner->measurement.time.value - 1 : 0;
      part.grid.rows.back().push_back(timed ? fmt::format("{} ({})", loss_text(loss), found->second.candidates) : "");
      part.shades.back().push_back(timed ? shade_of(loss) : -1);
    }
  }
  return part;
}

// What the values of a knob cost in a cell: the best candidate with each over the best at all.
struct KnobCost {
  std::string knob;
  std::vector<std::pair<std::string, Best>> values;  // the fastest first
  double closest = 0, spread = 0;                    // losses of the second value and of the last
  int64_t candidates = 0;
};

KnobCost cost_of(std::string knob, const std::map<std::string, Best>& values) {
  KnobCost cost{.knob = std::move(knob), .values = {values.begin(), values.end()}};
  std::ranges::stable_sort(cost.values, {}, [](const auto& value) { return value.second.seconds; });
  for (const auto& [word, best] : cost.values) cost.candidates += best.candidates;
  if (cost.values.size() < 2) return cost;
  const double least = cost.values.front().second.seconds;
  cost.closest = cost.values[1].second.seconds / least - 1;
  cost.spread = cost.values.back().second.seconds / least - 1;
  return cost;
}

// Knobs of the fastest candidate's variant, and the variant itself, that were tried with two values or more.
std::vector<KnobCost> costs_of(const Trials& trials) {
  const Trial* winner = fastest(trials);
  if (!winner) return {};
  std::map<std::string, Best> variants;
  const auto knobs = knob_words(winner->candidate);
  std::vector<std::map<std::string, Best>> values(knobs.size());
  for (const Trial* trial : trials) {
    variants[trial->candidate.variant->name].add(*trial);
    if (!same_variant(trial->candidate, winner->candidate)) continue;
    const auto words = knob_words(trial->candidate);
    for (size_t i = 0; i < std::min(values.size(), words.size()); ++i) values[i][words[i].second].add(*trial);
  }
  std::vector<KnobCost> costs = {cost_of("variant", variants)};
  for (size_t i = 0; i < values.size(); ++i) costs.push_back(cost_of(knobs[i].first, values[i]));
  std::erase_if(costs, [](const KnobCost& cost) { return cost.values.size() < 2; });
  std::ranges::stable_sort(costs, std::ranges::greater(), &KnobCost::spread);
  return costs;
}

// "64 best (12), 128 +3.1 % (9)".
std::string values_text(const KnobCost& cost) {
  std::string line;
  for (const auto& [word, best] : cost.values)
    line += fmt::format("{}{} {} ({})", line.empty() ? "" : ", ", word,
                        loss_text(best.seconds / cost.values.front().second.seconds - 1), best.candidates);
  return line;
}

ReportPart knobs_of_cell(const Cell& cell, const std::vector<KnobCost>& costs) {
  ReportPart part{
      .heading = id(cell), .grid = titled("knob|worst value>|second value>|candidates>|values"), .folded = true};
  for (const KnobCost& cost : costs)
    part.grid.rows.push_back({cost.knob, loss_text(cost.spread), loss_text(cost.closest),
                              std::to_string(cost.candidates), values_text(cost)});
  return part;
}

ReportPart knobs_of_all(const std::vector<std::vector<KnobCost>>& cells) {
  struct Row {
    std::vector<double> closest, spread;
    int64_t candidates = 0;
  };
  std::map<std::string, Row> rows;
  for (const std::vector<KnobCost>& costs : cells)
    for (const KnobCost& cost : costs) {
      Row& row = rows[cost.knob];
      row.closest.push_back(cost.closest), row.spread.push_back(cost.spread), row.candidates += cost.candidates;
    }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& row) { return median(row.second.spread); });
  ReportPart part{.grid = titled("knob|worst value, median of cells>|in the worst cell>|second value, median of cells>|"
                                 "cells>|candidates>")};
  for (const auto& [knob, row] : sorted)
    part.grid.rows.push_back({knob, loss_text(median(row.spread)), loss_text(*std::ranges::max_element(row.spread)),
                              loss_text(median(row.closest)), std::to_string(row.spread.size()),
                              std::to_string(row.candidates)});
  return part;
}

}  // namespace

ReportSection block_section(const ReportInput& input) {
  ReportSection section{"Block sizes", {}};
  if (!input.journal) return {section.title, {{.paragraphs = {no_journal()}}}};
  section.parts.push_back(
      {.paragraphs = {
           "For each tile of the fastest variant: how much longer the best candidate with it takes than the best of "
           "all, and in parentheses how many candidates with it were timed. A tile with few candidates may look worse "
           "than it is, because a search times few of those far from the best."}});
  for (const Entry& entry : input.table->entries)
    if (auto part = heat_map(timed_trials(input, entry.cell), entry.cell)) section.parts.push_back(std::move(*part));
  if (section.parts.size() == 1) section.parts = {{.paragraphs = {"No cell was timed with two tiles or more."}}};
  return section;
}

ReportSection knob_section(const ReportInput& input) {
  ReportSection section{"Knobs", {}};
  if (!input.journal) return {section.title, {{.paragraphs = {no_journal()}}}};
  std::vector<std::vector<KnobCost>> cells;
  for (const Entry& entry : input.table->entries) {
    cells.push_back(costs_of(timed_trials(input, entry.cell)));
    if (!cells.back().empty()) section.parts.push_back(knobs_of_cell(entry.cell, cells.back()));
  }
  if (section.parts.empty()) return {section.title, {{.paragraphs = {"No knob was timed with two values or more."}}}};
  ReportPart all = knobs_of_all(cells);
  all.paragraphs.emplace_back(
      "For each value of a knob: how much longer the best candidate with it takes than the best of all. The worst "
      "value is the most that a wrong choice of the knob costs, the second value the least. Only candidates that were "
      "timed count.");
  section.parts.insert(section.parts.begin(), std::move(all));
  return section;
}

}  // namespace moetune
