// Counting candidates before any of them runs.
#include "cli/tables/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/grid.h"
#include "base/text/units.h"
#include "export/exporter.h"

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

Plan make_plan(const std::vector<Cell>& cells, CandidateSource& source, const DeviceInfo& device, uint64_t seed) {
  Plan plan{.device = device};
  for (const Cell& cell : cells) {
    auto listed = source.can_list() ? source.candidates(cell.shape, seed) : nullptr;
    plan.items.push_back({cell, figures(make_problem(cell).routing), std::move(listed)});
  }
  return plan;
}

std::string plan_csv(const Plan& plan) {
  return csv_text(mapped(plan.items, [](const Plan::Item& item) {
    Fields fields = fields_of(item.cell);
    add_figures(fields, item.figures);
    const std::vector<std::string> numbers = counts(item);
    fields.insert(fields.end(), {{"candidates", numbers[0]}, {"pruned", numbers[1]}, {"legal", numbers[2]}});
    return fields;
  }));
}

Json plan_json(const Plan& plan, const Json& tool) {
  Json cells = Json::array();
  for (const Plan::Item& item : plan.items) {
    cells.push_back({{"cell", to_json(item.cell)}, {"figures", to_json(item.figures)}});
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

std::string plan_text(const Plan& plan, const Style& style) {
  const auto words = [&](const std::string& text) {
    return style.format == OutputFormat::markdown ? markdown_text(text) : text;
  };
  const bool any = std::ranges::any_of(plan.items, [](const Plan::Item& item) { return item.listed != nullptr; });
  std::map<std::string, int64_t> reasons;
  std::vector<HeadedTable> tables;
  for (const auto& items : by_layer(plan.items)) {
    const std::vector<std::string> heading = {title(items[0]->cell.shape)};
    HeadedTable routings{heading, cell_grid(figures_columns())};
    HeadedTable candidates{heading, cell_grid({{"candidates", true}, {"pruned", true}, {"legal", true}})};
    for (const Plan::Item* item : items) {
      add_row(routings.grid, item->cell, figures_row(item->figures, item->cell.shape.layer.local_experts()));
      add_row(candidates.grid, item->cell, counts(*item));
      if (!item->listed) continue;
      for (const auto& [reason, count] : item->listed->pruned) reasons[reason] += count;
    }
    tables.push_back(std::move(routings));
    if (any) tables.push_back(std::move(candidates));
  }
  std::string text = fmt::format("{} on {}\n\n{}", counted(plan.items.size(), "cell"), words(plan.device.name),
                                 headed_tables_text(tables, style));
  if (!any)
    text += "\n" +
            paragraph("The space is searched without a list of its candidates; --space quick would list some.", style);
  if (!reasons.empty()) text += "\n" + grid_text(pruned_grid(reasons), style);
  if (std::ranges::any_of(plan.items, [](const Plan::Item& item) { return item.listed && legal(*item.listed) == 0; }))
    return text;  // the error that follows says why
  return text + "\n" +
         paragraph(fmt::format("Would write {} and {}.", words(plan.output.string()), words(plan.journal.string())),
                   style);
}

}  // namespace moetune
