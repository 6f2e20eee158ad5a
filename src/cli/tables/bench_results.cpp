// Tables and JSON of measured results.
#include "cli/tables/bench_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/units.h"
#include "export/exporter.h"
#include "record/layer.h"

namespace moetune {
namespace {

// The first baseline of the cell whose results begin here: times are compared with its.
std::string baseline_of(const std::vector<EntrantResult>& results, size_t first) {
  for (size_t i = first; i < results.size() && results[i].cell == results[first].cell; ++i)
    if (results[i].status == Status::ok && results[i].entrant.role == "baseline") return results[i].entrant.name;
  return "baseline";
}

std::string versus_text(const EntrantResult& result, bool verbose) {
  const Estimate& versus = result.versus;
  if (versus.value <= 0) return "?";
  if (result.entrant.role == "peer") return factor_text(versus.value);
  return verbose ? factor_text(versus) : ratio_text(versus);
}

std::string name_of(const EntrantResult& result, bool verbose) {
  const auto& [role, contender, name] = result.entrant;
  if (verbose) return text(contender);
  return has_role(result.entrant, "winner") ? "winner: " + name : role == "layer" ? "in its layer: " + name : name;
}

Grid empty_grid(const std::string& baseline, const std::vector<Metric>& metrics, bool verbose) {
  Grid grid{{{"contender"}, {"time", true}}, {}};
  for (const Metric metric : metrics) grid.columns.push_back({title(metric), true});
  grid.columns.insert(grid.columns.end(), {{"vs " + baseline, true}, {"TFLOP/s", true}});
  if (!verbose) return grid;
  grid.columns.insert(grid.columns.begin(), {"role"});
  grid.columns.insert(grid.columns.end(), {{"TB/s", true}, {"min to max", true}});
  return grid;
}

std::vector<std::string> row_of(const EntrantResult& result, const std::vector<Metric>& metrics, bool verbose) {
  std::vector<std::string> row = {name_of(result, verbose)};
  if (verbose) row.insert(row.begin(), result.entrant.role);
  if (result.status != Status::ok) {
    row.emplace_back(name(result.status));
    return row;
  }
  const double seconds = result.measurement.time.value;
  row.push_back(time_text(result.measurement.time));
  for (const Metric metric : metrics) row.push_back(metric_text(result.measurement, metric));
  row.push_back(versus_text(result, verbose));
  row.push_back(fmt::format("{:.4g}", result.flops / seconds * 1e-12));
  if (!verbose) return row;
  row.push_back(fmt::format("{:.3g}", result.bytes / seconds * 1e-12));
  row.push_back(range_text(result.measurement));
  return row;
}

// The names under which a result is summed: "winners" and "default", whose candidates differ from cell to cell, or that
// of the contender.
std::vector<std::string> names_in_sums(const Entrant& entrant) {
  return mapped(split(entrant.role, '+'), [&](const std::string& role) -> std::string {
    return role == "winner" ? "winners" : role == "default" ? "default" : entrant.name;
  });
}

}  // namespace

bool has_role(const Entrant& entrant, std::string_view role) { return contains(split(entrant.role, '+'), role); }

Json to_json(const EntrantResult& result) {
  Json json = {{"cell", to_json(result.cell)},
               {"role", result.entrant.role},
               {"contender", to_json(result.entrant.contender)},
               {"status", name(result.status)}};
  if (result.status != Status::ok) {
    json["reason"] = result.reason;
    return json;
  }
  json["measurement"] = to_json(result.measurement);
  if (result.entrant.role != "peer") json["verdict"] = to_json(result.verdict);
  if (result.versus.value > 0) json.update(estimate_json("baseline_speedup", result.versus, 4));
  json["tflops"] = rounded(result.flops / result.measurement.time.value * 1e-12);
  json["tbps"] = rounded(result.bytes / result.measurement.time.value * 1e-12);
  return json;
}

std::string bench_csv(const std::vector<EntrantResult>& results) {
  return csv_text(mapped(results, [](const EntrantResult& result) {
    const Estimate& time = result.measurement.time;
    const auto number = [&](double value) { return result.status == Status::ok ? fmt::format("{:.6g}", value) : ""; };
    Fields fields = fields_of(result.cell);
    fields.insert(fields.end(), {{"role", result.entrant.role},
                                 {"contender", text(result.entrant.contender)},
                                 {"status", std::string(name(result.status))},
                                 {"reason", result.reason},
                                 {"median_us", number(time.value * 1e6)},
                                 {"low_us", number(time.low * 1e6)},
                                 {"high_us", number(time.high * 1e6)},
                                 {"samples", number(time.samples)},
                                 {"baseline_speedup", result.versus.value > 0 ? number(result.versus.value) : ""},
                                 {"tflops", number(result.flops / time.value * 1e-12)},
                                 {"tbps", number(result.bytes / time.value * 1e-12)}});
    return fields;
  }));
}

std::vector<CellTimes> cell_times(const std::vector<EntrantResult>& results) {
  std::vector<CellTimes> cells;
  for (const EntrantResult& result : results) {
    if (cells.empty() || cells.back().cell != result.cell) cells.push_back({.cell = result.cell});
    if (result.status != Status::ok) continue;
    for (const std::string& name : names_in_sums(result.entrant))
      cells.back().times.push_back({name, result.measurement.time, result.of_winner});
  }
  return cells;
}

std::vector<Comparison> comparisons(const std::vector<EntrantResult>& results) {
  std::vector<CellSpeedups> cells;
  for (size_t i = 0; i < results.size();) {
    CellSpeedups one{.cell = results[i].cell};
    double winner = 0;
    for (; i < results.size() && results[i].cell == one.cell; ++i) {
      const EntrantResult& result = results[i];
      if (result.status != Status::ok) continue;
      if (has_role(result.entrant, "winner")) winner = result.measurement.time.value;
      if (has_role(result.entrant, "baseline") || has_role(result.entrant, "peer"))
        one.factors.emplace_back(result.entrant.name, result.measurement.time.value);
    }
    for (auto& [other, factor] : one.factors) factor /= winner;
    if (winner > 0 && !one.factors.empty()) cells.push_back(std::move(one));
  }
  return cells.size() < 2 ? std::vector<Comparison>{} : compare(cells);
}

int64_t failures(const std::vector<EntrantResult>& results) {
  return std::ranges::count_if(results, [](const EntrantResult& result) { return result.status != Status::ok; });
}

std::string bench_text(const std::vector<EntrantResult>& results, const Style& style, const TunedTable& layers) {
  const std::vector<Metric> metrics =
      metrics_of(mapped(results, [](const EntrantResult& result) { return &result.measurement; }));
  std::vector<HeadedTable> tables;
  std::vector<std::string> reasons;
  for (size_t i = 0; i < results.size(); ++i) {
    const EntrantResult& result = results[i];
    if (i == 0 || results[i - 1].cell != result.cell)
      tables.push_back({cell_heading(result.cell), empty_grid(baseline_of(results, i), metrics, style.verbose)});
    Grid& grid = tables.back().grid;
    grid.rows.push_back(row_of(result, metrics, style.verbose));
    grid.rows.back().resize(grid.columns.size());
    if (result.status != Status::ok) reasons.push_back(reason_of(result));
  }
  std::ranges::move(layer_tables(layers, style.verbose), std::back_inserter(tables));
  std::ranges::move(step_tables(cell_times(results)), std::back_inserter(tables));
  if (const auto compared = comparisons(results); !compared.empty())
    tables.push_back({{"Speed of the winners over others"}, grid_of(compared)});
  return headed_tables_text(tables, style) + bullets(reasons, style);
}

}  // namespace moetune
