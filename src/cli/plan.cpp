// Counting candidates before any of them runs.
#include "cli/plan.h"

#include <fmt/format.h>

#include "base/grid.h"
#include "cli/wording.h"
#include "table/fields.h"

namespace moetune {

Plan make_plan(const std::vector<Cell>& cells, Offer& offer, const DeviceInfo& device, uint64_t seed) {
  Plan plan{.device = device, .items = {}, .output = {}, .journal = {}};
  for (const Cell& cell : cells) {
    const auto found = offer.to(cell.shape, seed);
    plan.items.push_back({cell, figures(make_problem(cell).routing), found->total,
                          static_cast<int64_t>(found->legal.size()), found->pruned});
  }
  return plan;
}

std::string csv(const Plan& plan) {
  const auto fields_of = [&](const Plan::Item& item) {
    Fields row = {{"device", plan.device.name}};
    add_cell(row, item.cell);
    add_figures(row, item.figures);
    row.emplace_back("candidates", std::to_string(item.total));
    row.emplace_back("legal", std::to_string(item.legal));
    row.emplace_back("pruned", std::to_string(item.total - item.legal));
    const Grid reasons = pruned_grid(item.pruned);
    row.emplace_back("pruned_because", reasons.rows.empty() ? "" : reasons.rows.front().front());
    return row;
  };
  std::vector<Fields> rows;
  for (const Plan::Item& item : plan.items) rows.push_back(fields_of(item));
  return csv_text(fields_of({}), rows);
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
