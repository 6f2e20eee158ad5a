// How fast the search found the best.
#include <fmt/format.h>

#include <algorithm>

#include "base/text/units.h"
#include "record/time_text.h"
#include "report/chart.h"
#include "report/report_content.h"

namespace moetune {
namespace {

// The best time after each trial, over the best of all; 0 before the first that was timed.
std::vector<double> best_so_far(const std::vector<Trial>& trials) {
  std::vector<double> best;
  for (const Trial& trial : trials) {
    const bool timed = trial.status == Status::ok && trial.measurement.time.value > 0;
    const double before = best.empty() ? 0 : best.back();
    best.push_back(!timed       ? before
                   : before > 0 ? std::min(before, trial.measurement.time.value)
                                : trial.measurement.time.value);
  }
  const double least = best.empty() ? 0 : best.back();
  if (least > 0)
    for (double& seconds : best) seconds /= least;
  return best;
}

// After how many trials the best was within a fraction of the final best; 0 = none was timed.
size_t trials_until(const std::vector<double>& best, double within) {
  const auto found = std::ranges::find_if(best, [&](double ratio) { return ratio > 0 && ratio <= 1 + within; });
  return found == best.end() ? 0 : static_cast<size_t>(found - best.begin()) + 1;
}

// A step where a trial is faster than all before, with its candidate.
Figure progress(const Cell& cell, const std::vector<Trial>& trials, const std::vector<double>& best) {
  Series steps{.style = 0, .markers = false, .points = {}}, found{.style = 0, .line = false, .points = {}};
  for (size_t i = 0; i < best.size(); ++i) {
    const bool faster = best[i] > 0 && (i == 0 || best[i] != best[i - 1]), last = i + 1 == best.size();
    if (!faster && !(last && best[i] > 0)) continue;
    const double x = static_cast<double>(i + 1), y = 100 * (best[i] - 1);
    if (!steps.points.empty()) steps.points.push_back({.x = x, .y = steps.points.back().y});
    steps.points.push_back({.x = x, .y = {y}});
    if (faster)
      found.points.push_back({.x = x,
                              .y = {y},
                              .title = fmt::format("trial {}: {}, {}", i + 1, text(trials[i].candidate),
                                                   time_text(trials[i].measurement.time))});
  }
  const std::string caption = id(cell);
  return {caption, svg({.description = "Best time so far over trials, " + caption,
                        .x = {"trials"},
                        .y = {"% above the best of all"},
                        .series = {found, steps}})};
}

}  // namespace

ReportSection search_section(const ReportInput& input) {
  ReportPart part{.grid = {{{"cell"},
                            {"trials", true},
                            {"candidates timed", true},
                            {"within 5 % after", true},
                            {"within 1 % after", true},
                            {"best after", true},
                            {"trials took", true},
                            {"final took", true}},
                           {}}};
  if (!input.journal) return {"Search", {{.paragraphs = {no_journal()}}}};
  for (const Entry& entry : input.table->entries) {
    const std::vector<Trial>* trials = recorded_trials(input, entry.cell);
    if (!trials) continue;
    const std::vector<double> best = best_so_far(*trials);
    double took = 0;
    for (const Trial& trial : *trials) took += trial.took;
    const auto final = input.journal->final_seconds.find(id(entry.cell));
    std::vector<std::string> row = {id(entry.cell), std::to_string(trials->size()),
                                    std::to_string(timed_trials(input, entry.cell).size())};
    for (const double within : {0.05, 0.01, 0.0})
      row.push_back(trials_until(best, within) > 0 ? std::to_string(trials_until(best, within)) : "never");
    row.push_back(took > 0 ? format_time(took) : "unknown");
    row.push_back(final == input.journal->final_seconds.end() ? "unknown" : format_time(final->second));
    part.grid.rows.push_back(std::move(row));
    part.figures.push_back(progress(entry.cell, *trials, best));
  }
  part.paragraphs.emplace_back(
      part.grid.rows.empty() ? "The journal has no trials of these cells."
                             : "The best time so far over trials, in percent above the best of all. The final then "
                               "measures the fastest again.");
  return {"Search", {part}};
}

}  // namespace moetune
