// How the search went, what failed and what was left out, and at which clocks all was timed.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/embedded.h"
#include "base/units.h"
#include "table/chart.h"
#include "table/report_parts.h"
#include "table/time_text.h"
#include "variant/space.h"

namespace moetune {
namespace {

constexpr size_t kMostReasons = 40;
constexpr int64_t kDrawn = 1000;  // legal candidates

const std::vector<Trial>* recorded(const ReportInput& input, const Cell& cell) {
  if (!input.journal) return nullptr;
  const auto found = input.journal->trials.find(id(cell));
  return found == input.journal->trials.end() || found->second.empty() ? nullptr : &found->second;
}

// The best time after each trial, over the best of all; 0 before the first that was timed.
std::vector<double> best_so_far(const std::vector<Trial>& trials) {
  std::vector<double> best;
  for (const Trial& trial : trials) {
    const bool timed = trial.status == Status::ok && trial.measurement.seconds > 0;
    const double before = best.empty() ? 0 : best.back();
    best.push_back(!timed       ? before
                   : before > 0 ? std::min(before, trial.measurement.seconds)
                                : trial.measurement.seconds);
  }
  const double least = best.empty() ? 0 : best.back();
  if (least > 0)
    for (double& seconds : best) seconds /= least;
  return best;
}

// After how many trials the best was within a share of the final best; 0 = none was timed.
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
    steps.points.push_back({.x = x, .y = y});
    if (faster)
      found.points.push_back({.x = x,
                              .y = y,
                              .title = fmt::format("trial {}: {}, {}", i + 1, text(trials[i].candidate),
                                                   time_text(trials[i].measurement))});
  }
  const std::string caption = id(cell);
  return {caption, svg({.description = "Best time so far over trials, " + caption,
                        .x = {"trials"},
                        .y = {"% above the best of all"},
                        .series = {found, steps}})};
}

struct Count {
  int64_t trials = 0;
  std::map<std::string, int64_t> cells = {};
  std::string example = {};
};

// Faults of candidates: the most frequent first.
ReportPart faults(const ReportInput& input) {
  std::map<std::pair<std::string, std::string>, Count> found;
  for (const Entry& entry : input.table->entries) {
    const std::vector<Trial>* trials = recorded(input, entry.cell);
    if (!trials) continue;
    for (const Trial& trial : *trials) {
      if (trial.status == Status::ok) continue;
      Count& count = found[{std::string(name(trial.status)), trial.reason}];
      ++count.trials, ++count.cells[id(entry.cell)], count.example = text(trial.candidate);
    }
  }
  std::vector<std::pair<std::pair<std::string, std::string>, Count>> sorted(found.begin(), found.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& fault) { return fault.second.trials; });
  ReportPart part{.heading = "Candidates that failed",
                  .grid = {{{"status"}, {"reason"}, {"trials", true}, {"cells", true}, {"example"}}, {}}};
  for (const auto& [fault, count] : sorted) {
    if (part.grid.rows.size() == kMostReasons) break;
    part.grid.rows.push_back(
        {fault.first, fault.second, std::to_string(count.trials), std::to_string(count.cells.size()), count.example});
  }
  if (sorted.empty()) part.paragraphs.emplace_back("No trial of the journal failed.");
  if (sorted.size() > kMostReasons)
    part.paragraphs.push_back(fmt::format("The {} most frequent of {} reasons.", kMostReasons, sorted.size()));
  return part;
}

std::optional<ReportPart> unfinished(const ReportInput& input) {
  ReportPart part{.heading = "Candidates that were started and never finished",
                  .grid = {{{"cell"}, {"candidate"}, {"times", true}}, {}}};
  for (const auto& [cell, candidates] : input.journal->unfinished)
    for (const auto& [candidate, times] : candidates)
      part.grid.rows.push_back({cell, candidate, std::to_string(times)});
  return part.grid.rows.empty() ? std::nullopt : std::optional(part);
}

ReportPart counts(const ReportInput& input) {
  ReportPart part{.heading = "Candidates of each cell",
                  .grid = {{{"cell"}, {"legal", true}, {"measured", true}, {"failed", true}, {"state"}}, {}}};
  for (const Entry& entry : input.table->entries) {
    const std::string state = !entry.skipped.empty() ? "no winner: " + entry.skipped
                              : entry.complete       ? "complete"
                                                     : "stopped early";
    part.grid.rows.push_back({id(entry.cell), std::to_string(entry.legal), std::to_string(entry.measured),
                              std::to_string(entry.failed), state});
  }
  return part;
}

// The journal's space without the variants that were not tried; nothing where it came from a file of the user's.
std::optional<SearchSpace> space_of(const Replay& journal) {
  const std::string& name = journal.header.space;
  const SearchSpace whole = whole_space();
  const std::vector<std::string> known = embedded_names("configs/spaces/");
  if (name != whole.name && std::ranges::find(known, name) == known.end()) return {};
  std::set<std::string> tried;
  for (const auto& [cell, trials] : journal.trials)
    for (const Trial& trial : trials) tried.insert(trial.candidate.variant);
  SearchSpace space = name == whole.name ? whole : load_space(name);
  std::erase_if(space.variants, [&](const VariantSpace& part) { return !tried.contains(part.variant); });
  return space;
}

std::string share_text(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

// The most frequent reason first.
void add_drawn(Grid& grid, const std::string& title, const Enumeration& drawn) {
  std::vector<std::pair<std::string, int64_t>> reasons(drawn.pruned.begin(), drawn.pruned.end());
  std::ranges::stable_sort(reasons, std::ranges::greater(), &std::pair<std::string, int64_t>::second);
  for (const auto& [reason, count] : reasons)
    grid.rows.push_back({title, reason, std::to_string(count), share_text(count, drawn.total)});
}

ReportPart pruned(const ReportInput& input) {
  const JournalHeader& header = input.journal->header;
  ReportPart part{.heading = "Candidates that were pruned"};
  const std::optional<SearchSpace> space = space_of(*input.journal);
  if (!space) {
    part.paragraphs.push_back(
        fmt::format("The space {} is a file. tune --dry-run with the options of the run lists what is pruned and why.",
                    header.space));
    return part;
  }
  part.grid.columns = {{"layer"}, {"pruned because"}, {"candidates", true}, {"share", true}};
  for (const auto& entries : by_shape(*input.table)) {
    const Shape& shape = entries[0]->cell.shape;
    const Enumeration drawn = draw(*space, shape, input.table->device, kDrawn, header.seed);
    part.paragraphs.push_back(
        fmt::format("{}: {} candidates looked at, {} of them legal.", title(shape), drawn.total, drawn.legal.size()));
    add_drawn(part.grid, title(shape), drawn);
  }
  part.paragraphs.insert(
      part.paragraphs.begin(),
      fmt::format("Candidates of the space {}, as this program has it, drawn at random until {} are legal or all are "
                  "drawn. Variants that were not tried are left out; values that --set left out are not.",
                  header.space, kDrawn));
  return part;
}

std::string clock_text(const Measurement* time) {
  return time && time->clock_mhz > 0 ? fmt::format("{:.0f} MHz", time->clock_mhz) : "";
}

// The least and the highest clock of a cell's blocks.
std::string clock_range(const ReportInput& input, const Cell& cell) {
  double low = 0, high = 0;
  for (const Trial* trial : timed_trials(input, cell)) {
    const double clock = trial->measurement.clock_mhz;
    if (!(clock > 0)) continue;
    low = low > 0 ? std::min(low, clock) : clock;
    high = std::max(high, clock);
  }
  if (low == high) return low > 0 ? fmt::format("{:.0f} MHz", low) : "";
  return fmt::format("{:.0f} to {:.0f} MHz", low, high);
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
    const std::vector<Trial>* trials = recorded(input, entry.cell);
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

ReportSection failure_section(const ReportInput& input) {
  ReportSection section{"Failed and pruned", {counts(input)}};
  if (!input.journal) {
    section.parts.push_back({.paragraphs = {no_journal()}});
    return section;
  }
  section.parts.push_back(faults(input));
  if (auto part = unfinished(input)) section.parts.push_back(std::move(*part));
  section.parts.push_back(pruned(input));
  return section;
}

ReportSection clock_section(const ReportInput& input) {
  ReportPart part{.grid = {{{"cell"}, {"ours", true}}, {}}};
  std::vector<std::string> names = other_names(input);
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(
        input.table->entries, [&](const Entry& entry) { return !clock_text(other_time(input, entry, name)).empty(); });
  });
  for (const std::string& name : names) part.grid.columns.push_back({name, true});
  part.grid.columns.push_back({"trials", true});
  part.grid.columns.push_back({"taken by others", true});
  Series series{.style = 0, .line = false, .points = {}};
  for (const Entry& entry : input.table->entries) {
    if (!entry.skipped.empty()) continue;
    const Measurement& ours = entry.measurement;
    std::vector<std::string> row = {id(entry.cell), clock_text(&ours)};
    for (const std::string& name : names) row.push_back(clock_text(other_time(input, entry, name)));
    row.push_back(clock_range(input, entry.cell));
    row.push_back(ours.waited > 0 ? fmt::format("{:.1f} %", 100 * ours.waited) : "");
    part.grid.rows.push_back(std::move(row));
    if (ours.clock_mhz > 0)
      series.points.push_back({.x = ours.seconds * 1e6,
                               .y = ours.clock_mhz,
                               .title = fmt::format("{}: {}, {}", id(entry.cell), clock_text(&ours), time_text(ours))});
  }
  part.paragraphs.emplace_back(series.points.empty()
                                   ? "The device did not tell its clock."
                                   : "The median clock while each was timed; trials are those of the journal.");
  if (!series.points.empty())
    part.figures.push_back(
        {"Clock of each winner over its time", svg({.description = "Clock of each winner over its time",
                                                    .x = {"time, µs", true},
                                                    .y = {.label = "MHz", .from_zero = false},
                                                    .series = {series}})});
  return {"Clocks", {part}};
}

}  // namespace moetune
