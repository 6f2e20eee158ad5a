// Counting candidates before any of them runs.
#include "cli/plan.h"

#include <fmt/format.h>

#include "base/grid.h"
#include "cli/wording.h"

namespace moetune {

Plan make_plan(const std::vector<Cell>& cells, const SearchSpace& space, const DeviceInfo& device) {
  Plan plan{.device = device, .items = {}, .output = {}, .journal = {}};
  Shape counted_shape;
  Enumeration enumeration;
  for (const Cell& cell : cells) {
    // Legality knows nothing of rows: cells of one shape follow each other and share the enumeration.
    if (plan.items.empty() || !(cell.shape == counted_shape)) {
      counted_shape = cell.shape;
      enumeration = enumerate(space, cell.shape, device);
    }
    plan.items.push_back({cell, figures(make_problem(cell).routing), enumeration.total,
                          static_cast<int64_t>(enumeration.legal.size()), enumeration.pruned});
  }
  return plan;
}

Json plan_json(const Plan& plan, const Json& tool) {
  Json cells = Json::array();
  for (const Plan::Item& item : plan.items) {
    const RoutingFigures& f = item.figures;
    cells.push_back({{"cell", to_json(item.cell)},
                     {"figures",
                      {{"rows", f.rows},
                       {"active_experts", f.active_experts},
                       {"max_rows", f.max_rows},
                       {"max_over_mean", rounded(f.max_over_mean)},
                       {"cv", rounded(f.cv)},
                       {"effective_experts", rounded(f.effective_experts)}}},
                     {"total", item.total},
                     {"legal", item.legal},
                     {"pruned", Json(item.pruned)}});
  }
  return {{"schema", "moetune.plan/1"},
          {"tool", tool},
          {"device", to_json(plan.device)},
          {"cells", std::move(cells)},
          {"files", {{"output", plan.output.string()}, {"journal", plan.journal.string()}}}};
}

std::string markdown(const Plan& plan, int columns) {
  Grid cells{{{"cell"}}, {}};
  for (const Column& column : figures_columns()) cells.columns.push_back(column);
  for (const char* title : {"candidates", "pruned", "legal"}) cells.columns.push_back({title, true});
  std::map<std::string, int64_t> reasons;
  for (const Plan::Item& item : plan.items) {
    std::vector<std::string> row = {id(item.cell)};
    for (std::string& text : figures_row(item.figures, item.cell.shape.layer.local_experts()))
      row.push_back(std::move(text));
    for (const int64_t count : {item.total, item.total - item.legal, item.legal})
      row.push_back(fmt::format("{}", count));
    cells.rows.push_back(std::move(row));
    for (const auto& [reason, count] : item.pruned) reasons[reason] += count;
  }
  std::string text = fmt::format("{} on {}\n\n{}", counted(static_cast<int64_t>(plan.items.size()), "cell", "cells"),
                                 plan.device.name, fitted(cells, columns));
  if (!reasons.empty()) text += "\n" + fitted(pruned_grid(reasons), columns);
  return text + fmt::format("\nWould write {} and {}.\n", plan.output.string(), plan.journal.string());
}

}  // namespace moetune
