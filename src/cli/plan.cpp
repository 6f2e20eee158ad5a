// Counting candidates before any of them runs.
#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/grid.h"
#include "base/units.h"
#include "cli/wording.h"
#include "table/fields.h"
#include "table/mergeable.h"
#include "tune/estimate.h"
#include "workload/product.h"

namespace moetune {

namespace {

// The journal beside the table, where its times compare with those of the run. What is wrong with it the run tells.
Replay journal_of(const Plan& plan, Regime regime) {
  std::error_code error;
  if (!std::filesystem::exists(plan.journal, error)) return {};
  try {
    Replay journal = read_journal(plan.journal);
    if (same_model(journal.header.device, plan.device) && journal.header.regime == regime) return journal;
  } catch (const Error&) {
  }
  return {};
}

int64_t candidates_in(const std::vector<Trial>& trials) {
  std::set<Candidate> candidates;
  for (const Trial& trial : trials) candidates.insert(trial.candidate);
  return std::ssize(candidates);
}

std::string_view by(bool guessed) { return guessed ? "guess" : "journal"; }

bool guessed(const Plan& plan) {
  return std::ranges::any_of(plan.items, [](const Plan::Item& item) { return item.guessed; });
}

int64_t trials(const Plan& plan) {
  int64_t sum = 0;
  for (const Plan::Item& item : plan.items) sum += item.trials;
  return sum;
}

std::string estimate_sentence(const Plan& plan) {
  const std::string source = guessed(plan) ? std::string("a guess: no journal tells how long trials take here")
                                           : fmt::format("by the trials in {}", plan.journal.string());
  return fmt::format("Would take about {} for {} ({}).", format_time(plan.seconds),
                     counted(trials(plan), "trial", "trials"), source);
}

}  // namespace

Plan make_plan(const std::vector<Cell>& cells, Offer& offer, const DeviceInfo& device, uint64_t seed) {
  Plan plan{.device = device, .items = {}, .output = {}, .journal = {}};
  for (const Cell& cell : cells) {
    const auto found = offer.to(cell.shape, seed);
    const Problem problem = make_problem(cell);
    plan.items.push_back({.cell = cell,
                          .figures = figures(problem.routing),
                          .total = found->total,
                          .legal = static_cast<int64_t>(found->legal.size()),
                          .pruned = found->pruned,
                          .flops = flops(product_of(problem))});
  }
  return plan;
}

void estimate(Plan& plan, const TuneRequest& request, size_t devices, bool resume) {
  const Replay journal = journal_of(plan, request.regime);
  const Pace pace = pace_of(journal);
  plan.seconds = 0;
  for (Plan::Item& item : plan.items) {
    const std::string cell = id(item.cell);
    const auto done = journal.trials.find(cell);
    item.trials = request.max_candidates > 0 ? std::min(item.legal, request.max_candidates) : item.legal;
    if (resume && done != journal.trials.end())
      item.trials = std::max<int64_t>(0, item.trials - candidates_in(done->second));
    item.seconds = estimated_seconds({cell, item.trials, item.flops}, pace, plan.device, request.regime, &item.guessed);
    plan.seconds += item.seconds;
  }
  plan.seconds /= static_cast<double>(std::clamp<size_t>(devices, 1, std::max<size_t>(1, plan.items.size())));
  if (request.time_budget > 0) plan.seconds = std::min(plan.seconds, request.time_budget);
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
    row.emplace_back("trials", std::to_string(item.trials));
    row.emplace_back("estimated_seconds", number_field(item.seconds, 3));
    row.emplace_back("estimate_by", by(item.guessed));
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
    cells.push_back(
        {{"cell", to_json(item.cell)},
         {"figures",
          {{"rows", f.rows},
           {"active_experts", f.active_experts},
           {"max_rows", f.max_rows},
           {"max_over_mean", rounded(f.max_over_mean)},
           {"cv", rounded(f.cv)},
           {"effective_experts", rounded(f.effective_experts)}}},
         {"total", item.total},
         {"legal", item.legal},
         {"pruned", Json(item.pruned)},
         {"estimate", {{"trials", item.trials}, {"seconds", rounded(item.seconds, 3)}, {"by", by(item.guessed)}}}});
  }
  return {{"schema", "moetune.plan/1"},
          {"tool", tool},
          {"device", to_json(plan.device)},
          {"cells", std::move(cells)},
          {"estimate", {{"trials", trials(plan)}, {"seconds", rounded(plan.seconds, 3)}, {"by", by(guessed(plan))}}},
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
  return text + fmt::format("\n{}\nWould write {} and {}.\n", estimate_sentence(plan), plan.output.string(),
                            plan.journal.string());
}

}  // namespace moetune
