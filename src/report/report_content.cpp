// What several sections need of the input.
#include "report/report_content.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {

std::string routing_title(const Cell& cell) {
  return text(cell.routing) + (cell.seed == 0 ? "" : fmt::format(", seed {}", cell.seed));
}

std::string cell_title(const Cell& cell) {
  return fmt::format("{} {}, {}", cell.tokens, cell.tokens == 1 ? "token" : "tokens", routing_title(cell));
}

std::vector<std::string> other_names(const ReportInput& input) {
  std::vector<std::string> names = rival_names(all_entries(*input.table));
  if (!input.peers) return names;
  for (const Entry& entry : input.table->entries)
    for (const PeerTime& time : input.peers->of(id(entry.cell)))
      if (std::ranges::find(names, time.peer) == names.end()) names.push_back(time.peer);
  return names;
}

const Measurement* other_time(const ReportInput& input, const Entry& entry, const std::string& name) {
  if (const Rival* rival = find_rival(entry, name)) return &rival->measurement;
  if (!input.peers) return nullptr;
  const auto times = input.peers->of(id(entry.cell));
  const auto found = std::ranges::find(times, name, &PeerTime::peer);
  return found == times.end() ? nullptr : &found->measurement;
}

std::optional<Estimate> speed_up(const ReportInput& input, const Entry& entry, const std::string& name) {
  if (!entry.skipped.empty() || !(entry.measurement.time.value > 0)) return {};
  if (const Rival* rival = find_rival(entry, name))
    return rival->ratio.value > 0 ? std::optional(1 / rival->ratio) : std::nullopt;
  const Measurement* peer = other_time(input, entry, name);
  return peer ? std::optional(peer->time / entry.measurement.time) : std::nullopt;
}

const std::vector<Trial>* recorded_trials(const ReportInput& input, const Cell& cell) {
  if (!input.journal) return nullptr;
  const auto found = input.journal->trials.find(id(cell));
  return found == input.journal->trials.end() || found->second.empty() ? nullptr : &found->second;
}

std::vector<const Trial*> timed_trials(const ReportInput& input, const Cell& cell) {
  std::vector<const Trial*> trials;
  const std::vector<Trial>* recorded = recorded_trials(input, cell);
  if (!recorded) return trials;
  std::map<Candidate, const Trial*> last;
  for (const Trial& trial : *recorded)
    if (trial.status == Status::ok && trial.measurement.time.value > 0) last[trial.candidate] = &trial;
  for (const auto& [candidate, trial] : last) trials.push_back(trial);
  return trials;
}

std::string loss_text(double loss) {
  if (loss == 0) return "best";
  return fmt::format("+{:.{}f} %", 100 * loss, loss < 0.0995 ? 1 : 0);
}

std::string no_journal() {
  return "There is no journal: give the one of the run that made the table with --journal FILE.";
}

}  // namespace moetune
