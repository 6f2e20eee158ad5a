// Knob values that wrong candidates have and right ones lack.
#include "record/wrong_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/group.h"
#include "base/text/units.h"
#include "variant/variant.h"

namespace moetune {
namespace {

// Values that all wrong candidates have and no right one; where there are none, those that some right one lacks.
std::vector<std::string> shared_knobs(const std::set<Candidate>& wrong, const std::set<Candidate>& right) {
  std::vector<std::string> alone, shared;
  const Candidate& first = *wrong.begin();
  if (!std::ranges::all_of(wrong, [&](const Candidate& one) { return same_variant(one, first); })) return {};
  for (size_t i = 0; i < first.values.size(); ++i) {
    const auto has_it = [&](const Candidate& one) {
      return same_variant(one, first) && one.values[i] == first.values[i];
    };
    const auto with_it = std::ranges::count_if(right, has_it);
    if (!std::ranges::all_of(wrong, has_it) || with_it == std::ssize(right)) continue;
    const Knob& knob = first.variant->knobs[i];
    (with_it == 0 ? alone : shared).push_back(fmt::format("{}={}", knob.name, knob_text(knob, first.values[i])));
  }
  return alone.empty() ? shared : alone;
}

}  // namespace

std::vector<VerifiedCandidate> verified_candidates(const TunedTable& table, const JournalContents& journal) {
  std::vector<VerifiedCandidate> verified;
  for (const Entry& entry : table.entries)
    for (const Trial& trial : value_in(journal.trials, id(entry.cell)))
      if (trial.status == Status::ok || trial.status == Status::wrong_result)
        verified.push_back({entry.cell, trial.candidate, trial.reason});
  return verified;
}

std::optional<WrongResults> wrong_results(const std::vector<VerifiedCandidate>& verified) {
  std::set<Candidate> wrong, right;
  std::set<std::string> cells;
  WrongResults result;
  for (const VerifiedCandidate& one : verified) {
    if (one.fault.empty()) {
      right.insert(one.candidate);
      continue;
    }
    if (wrong.empty()) result.first = one;
    wrong.insert(one.candidate);
    cells.insert(id(one.cell));
  }
  if (wrong.empty()) return std::nullopt;
  for (const Candidate& one : wrong) right.erase(one);  // right in another cell only
  result.candidates = wrong.size(), result.cells = cells.size();
  if (wrong.size() > 1) result.knobs = shared_knobs(wrong, right);
  return result;
}

std::string sentence(const WrongResults& wrong) {
  return fmt::format("{}{} gave wrong results in {}. The first, in {}: {}.", counted(wrong.candidates, "candidate"),
                     wrong.knobs.empty() ? "" : fmt::format(" with {}", fmt::join(wrong.knobs, " ")),
                     counted(wrong.cells, "cell"), id(wrong.first.cell), wrong.first.fault);
}

}  // namespace moetune
