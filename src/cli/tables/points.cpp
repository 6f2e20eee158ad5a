// Tables, JSON and CSV of measured points.
#include "cli/tables/points.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/units.h"
#include "cli/tables/steps.h"
#include "cli/text/sections.h"
#include "cli/text/wording.h"
#include "record/fields.h"

namespace moetune {
namespace {

// The first baseline of the cell whose points begin here: times are compared with its.
std::string baseline_of(const std::vector<Point>& points, size_t first) {
  for (size_t i = first; i < points.size() && points[i].cell == points[first].cell; ++i)
    if (points[i].status == Status::ok && points[i].entrant.role == "baseline") return points[i].entrant.name;
  return "baseline";
}

std::string versus_text(const Point& point, bool verbose) {
  const Estimate& versus = point.versus;
  if (versus.value <= 0) return "?";
  if (point.entrant.role == "peer") return factor_text(versus.value);
  return verbose ? factor_text(versus) : ratio_text(versus);
}

std::string name_of(const Point& point, bool verbose) {
  const auto& [role, contender, name] = point.entrant;
  if (verbose) return text(contender);
  return role.find("winner") == std::string::npos ? name : "winner: " + name;
}

Grid empty_grid(const std::string& baseline, bool verbose) {
  Grid grid{{{"contender"}, {"time", true}, {"vs " + baseline, true}, {"TFLOP/s", true}}, {}};
  if (!verbose) return grid;
  grid.columns.insert(grid.columns.begin(), {"role"});
  grid.columns.push_back({"TB/s", true});
  return grid;
}

std::vector<std::string> row_of(const Point& point, bool verbose) {
  std::vector<std::string> row = {name_of(point, verbose)};
  if (verbose) row.insert(row.begin(), point.entrant.role);
  if (point.status != Status::ok) {
    row.emplace_back(name(point.status));
    return row;
  }
  const double seconds = point.measurement.time.value;
  row.push_back(time_text(point.measurement.time));
  row.push_back(versus_text(point, verbose));
  row.push_back(fmt::format("{:.4g}", point.flops / seconds * 1e-12));
  if (verbose) row.push_back(fmt::format("{:.3g}", point.bytes / seconds * 1e-12));
  return row;
}

// As whom a point is summed: a cell's winner and its default differ from cell to cell, and one candidate may be both.
std::vector<std::string> names_in_sums(const Entrant& entrant) {
  std::vector<std::string> names;
  for (const std::string& role : split(entrant.role, '+'))
    names.push_back(role == "winner" ? "winners" : role == "default" ? "default" : entrant.name);
  return names;
}

// `step`: what the point's cell is part of, or null.
Fields fields_of(const Point& point, const Step* step) {
  const bool ok = point.status == Status::ok;
  const double seconds = point.measurement.time.value;
  const Estimate& versus = point.versus;
  Fields row;
  add_cell(row, point.cell);
  row.emplace_back("role", point.entrant.role);
  row.emplace_back("baseline", point.entrant.contender.baseline);
  add_candidate(row, point.entrant.contender.baseline.empty() ? &point.entrant.contender.candidate : nullptr);
  row.emplace_back("status", name(point.status));
  row.emplace_back("reason", point.reason);
  add_measurement(row, ok ? &point.measurement : nullptr);
  const auto add = [&](std::string_view column, double value, int digits) {
    row.emplace_back(column, ok && value > 0 ? number_field(value, digits) : "");
  };
  add("baseline_speedup", versus.value, 4);
  add("baseline_speedup_low", versus.low, 4);
  add("baseline_speedup_high", versus.high, 4);
  add("tflops", point.flops / seconds * 1e-12, 4);
  add("tbps", point.bytes / seconds * 1e-12, 4);
  add_verdict(row, point.verdict.elements > 0 ? &point.verdict : nullptr);
  const ContenderTime* sum = step && ok ? find_sum(*step, names_in_sums(point.entrant)[0]) : nullptr;
  row.emplace_back("step_us", sum ? number_field(sum->time.value * 1e6) : "");
  return row;
}

}  // namespace

bool has_role(const Entrant& entrant, std::string_view role) {
  const std::vector<std::string> roles = split(entrant.role, '+');
  return std::ranges::find(roles, role) != roles.end();
}

Json to_json(const Point& point) {
  Json json = {{"cell", to_json(point.cell)},
               {"role", point.entrant.role},
               {"contender", to_json(point.entrant.contender)},
               {"status", name(point.status)}};
  if (point.status != Status::ok) {
    json["reason"] = point.reason;
    return json;
  }
  json["measurement"] = to_json(point.measurement);
  if (point.entrant.role != "peer") json["verdict"] = to_json(point.verdict);
  json["tflops"] = rounded(point.flops / point.measurement.time.value * 1e-12);
  json["tbps"] = rounded(point.bytes / point.measurement.time.value * 1e-12);
  return json;
}

std::vector<CellTimes> cell_times(const std::vector<Point>& points) {
  std::vector<CellTimes> cells;
  for (const Point& point : points) {
    if (cells.empty() || cells.back().cell != point.cell) cells.push_back({.cell = point.cell, .times = {}});
    if (point.status != Status::ok) continue;
    for (const std::string& name : names_in_sums(point.entrant)) {
      cells.back().times.push_back({name, point.measurement.time, point.of_winner});
    }
  }
  return cells;
}

std::vector<Comparison> comparisons(const std::vector<Point>& points) {
  std::vector<CellSpeedups> cells;
  for (size_t i = 0; i < points.size();) {
    CellSpeedups one{.cell = points[i].cell, .factors = {}};
    double winner = 0;
    std::vector<const Point*> others;
    for (; i < points.size() && points[i].cell == one.cell; ++i) {
      const Point& point = points[i];
      if (point.status != Status::ok) continue;
      if (has_role(point.entrant, "winner")) winner = point.measurement.time.value;
      if (has_role(point.entrant, "baseline") || has_role(point.entrant, "peer")) others.push_back(&point);
    }
    if (!(winner > 0) || others.empty()) continue;
    for (const Point* other : others)
      one.factors.emplace_back(other->entrant.name, other->measurement.time.value / winner);
    cells.push_back(std::move(one));
  }
  return cells.size() < 2 ? std::vector<Comparison>{} : compare(cells);
}

std::string csv(const std::vector<Point>& points) {
  const std::vector<Step> steps = training_steps(cell_times(points));
  std::vector<Fields> rows;
  size_t cell = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i > 0 && points[i].cell != points[i - 1].cell) ++cell;
    rows.push_back(fields_of(points[i], step_of(steps, cell)));
  }
  return csv_text(fields_of({}, nullptr), rows);
}

int64_t failures(const std::vector<Point>& points) {
  return std::ranges::count_if(points, [](const Point& point) { return point.status != Status::ok; });
}

std::string points_text(const std::vector<Point>& points, Format format, const Terminal& terminal, bool verbose) {
  std::vector<Section> sections;
  std::vector<std::string> reasons;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (i == 0 || points[i - 1].cell != point.cell)
      sections.push_back({cell_heading(point.cell), empty_grid(baseline_of(points, i), verbose)});
    Grid& grid = sections.back().grid;
    grid.rows.push_back(row_of(point, verbose));
    grid.rows.back().resize(grid.columns.size());
    if (point.status != Status::ok)
      reasons.push_back(
          fmt::format("{}, {}: {}: {}", id(point.cell), point.entrant.name, name(point.status), point.reason));
  }
  for (Section& section : step_sections(cell_times(points))) sections.push_back(std::move(section));
  if (const auto compared = comparisons(points); !compared.empty())
    sections.push_back({{"Speed of the winners over others"}, grid_of(compared)});
  const int columns = table_columns(format, terminal, verbose);
  return sections_text(sections, format, columns) + bullets(reasons, format, columns);
}

}  // namespace moetune
