// How fast the search found the best; candidates that failed or were never finished, and why.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text/units.h"
#include "record/table/table.h"
#include "report/report_content.h"

namespace moetune {
namespace {

constexpr size_t kMaxReasons = 40;

struct Count {
  int64_t times = 0;
  std::set<std::string> places = {};
  std::string example = {};
};

ReportPart faults(const ReportInput& input) {
  std::map<std::pair<std::string, std::string>, Count> found;
  for (const Entry& entry : input.table->entries)
    for (const Trial& trial : recorded_trials(input, entry.cell)) {
      if (trial.status == Status::ok) continue;
      Count& count = found[{std::string(name(trial.status)), trial.reason}];
      ++count.times, count.places.insert(id(entry.cell)), count.example = text(trial.candidate);
    }
  ReportPart part{.heading = "Candidates that failed",
                  .grid = {{{"status"}, {"reason"}, {"trials", true}, {"cells", true}, {"example"}}, {}}};
  std::vector<std::pair<std::pair<std::string, std::string>, Count>> sorted(found.begin(), found.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& item) { return item.second.times; });
  for (const auto& [fault, count] : sorted) {
    if (part.grid.rows.size() == kMaxReasons) break;
    part.grid.rows.push_back(
        {fault.first, fault.second, std::to_string(count.times), std::to_string(count.places.size()), count.example});
  }
  if (found.empty()) part.paragraphs.emplace_back("No trial of the journal failed.");
  if (found.size() > kMaxReasons)
    part.paragraphs.push_back(fmt::format("The {} most frequent of {} reasons.", kMaxReasons, found.size()));
  return part;
}

ReportPart unfinished(const ReportInput& input) {
  ReportPart part{.heading = "Candidates that were started and never finished",
                  .grid = {{{"cell"}, {"candidate"}, {"times", true}}, {}}};
  for (const auto& [cell, candidates] : input.journal->unfinished)
    for (const auto& [candidate, times] : candidates)
      part.grid.rows.push_back({cell, candidate, std::to_string(times)});
  return part;
}

ReportPart counts(const ReportInput& input) {
  ReportPart part{.heading = "Candidates of each cell",
                  .grid = {{{"cell"}, {"legal", true}, {"measured", true}, {"failed", true}, {"state"}}, {}}};
  part.paragraphs.push_back("Without an enumerated space, \"legal\" counts only the candidates that were tried.");
  for (const Entry& entry : input.table->entries) {
    const std::string state = !entry.skipped.empty() ? "no winner: " + entry.skipped
                              : entry.complete       ? "complete"
                                                     : "stopped early";
    part.grid.rows.push_back({id(entry.cell), std::to_string(entry.legal), std::to_string(entry.measured),
                              std::to_string(entry.failed), state});
  }
  return part;
}

// The best time after each trial, over the best of all; 0 before the first that was timed.
std::vector<double> best_so_far(std::span<const Trial> trials) {
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
Figure progress(const Cell& cell, std::span<const Trial> trials, const std::vector<double>& best) {
  Series steps{.style = 0, .markers = false}, found{.style = 0, .line = false};
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

ReportSection failure_section(const ReportInput& input) {
  ReportSection section{"Failed candidates", {counts(input)}};
  section.parts.push_back(input.journal ? faults(input) : ReportPart{.paragraphs = {no_journal()}});
  if (!input.journal) return section;
  if (ReportPart part = unfinished(input); !part.grid.rows.empty()) section.parts.push_back(std::move(part));
  return section;
}

ReportSection search_section(const ReportInput& input) {
  ReportPart part{.grid = titled("cell|trials>|candidates timed>|within 5 % after>|within 1 % after>|best after>|"
                                 "trials took>|final took>")};
  if (!input.journal) return {"Search", {{.paragraphs = {no_journal()}}}};
  for (const Entry& entry : input.table->entries) {
    const std::span<const Trial> trials = recorded_trials(input, entry.cell);
    if (trials.empty()) continue;
    const std::vector<double> best = best_so_far(trials);
    double took = 0;
    for (const Trial& trial : trials) took += trial.took;
    const double final = value_in(input.journal->final_seconds, id(entry.cell));
    std::vector<std::string> row = {id(entry.cell), std::to_string(trials.size()),
                                    std::to_string(timed_trials(input, entry.cell).size())};
    for (const double within : {0.05, 0.01, 0.0})
      row.push_back(trials_until(best, within) > 0 ? std::to_string(trials_until(best, within)) : "never");
    for (const double seconds : {took, final}) row.push_back(seconds > 0 ? format_time(seconds) : "unknown");
    part.grid.rows.push_back(std::move(row));
    part.figures.push_back(progress(entry.cell, trials, best));
  }
  part.paragraphs.emplace_back(
      part.grid.rows.empty() ? "The journal has no trials of these cells."
                             : "The best time so far over trials, in percent above the best of all. The final then "
                               "measures the fastest again.");
  return {"Search", {part}};
}

}  // namespace moetune
