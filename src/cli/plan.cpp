// Counting candidates before any of them runs.
#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/grid.h"
#include "cli/wording.h"
#include "table/fields.h"

namespace moetune {

namespace {

int64_t legal(const Enumeration& listed) { return std::ssize(listed.legal); }

// Candidates, those pruned, and those legal; empty where not counted.
std::vector<std::string> counts(const Plan::Item& item) {
  if (!item.listed) return {"", "", ""};
  const Enumeration& listed = *item.listed;
  return {std::to_string(listed.total), std::to_string(listed.total - legal(listed)), std::to_string(legal(listed))};
}

}  // namespace

Plan make_plan(const std::vector<Cell>& cells, Offer& offer, const DeviceInfo& device, uint64_t seed) {
  Plan plan{.device = device, .items = {}, .output = {}, .journal = {}};
  for (const Cell& cell : cells) {
    auto listed = offer.can_list() ? offer.to(cell.shape, seed) : nullptr;
    plan.items.push_back({cell, figures(make_problem(cell).routing), std::move(listed)});
  }
  return plan;
}

std::string csv(const Plan& plan) {
  const auto fields_of = [&](const Plan::Item& item) {
    Fields row = {{"device", plan.device.name}};
    add_cell(row, item.cell);
    add_figures(row, item.figures);
    const std::vector<std::string> told = counts(item);
    row.emplace_back("candidates", told[0]);
    row.emplace_back("legal", told[2]);
    row.emplace_back("pruned", told[1]);
    const Grid reasons = pruned_grid(item.listed ? item.listed->pruned : std::map<std::string, int64_t>{});
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
                       {"effective_experts", rounded(f.effective_experts)}}}});
    if (!item.listed) continue;
    cells.back()["total"] = item.listed->total;
    cells.back()["legal"] = legal(*item.listed);
    cells.back()["pruned"] = Json(item.listed->pruned);
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
  const bool any = std::ranges::any_of(plan.items, [](const Plan::Item& item) { return item.listed != nullptr; });
  if (any)
    for (const char* title : {"candidates", "pruned", "legal"}) cells.columns.push_back({title, true});
  std::map<std::string, int64_t> reasons;
  for (const Plan::Item& item : plan.items) {
    std::vector<std::string> row = {id(item.cell)};
    for (std::string& text : figures_row(item.figures, item.cell.shape.layer.local_experts()))
      row.push_back(std::move(text));
    if (any)
      for (std::string& count : counts(item)) row.push_back(std::move(count));
    cells.rows.push_back(std::move(row));
    if (item.listed)
      for (const auto& [reason, count] : item.listed->pruned) reasons[reason] += count;
  }
  std::string text = fmt::format("{} on {}\n\n{}", counted(static_cast<int64_t>(plan.items.size()), "cell", "cells"),
                                 plan.device.name, fitted(cells, columns));
  if (!any) text += "\nThe space is searched without a list of its candidates; --space quick would list some.\n";
  if (!reasons.empty()) text += "\n" + fitted(pruned_grid(reasons), columns);
  return text + fmt::format("\nWould write {} and {}.\n", plan.output.string(), plan.journal.string());
}

}  // namespace moetune
