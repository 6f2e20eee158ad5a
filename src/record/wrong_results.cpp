// Knob values that tell wrong candidates from right ones.
#include "record/wrong_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/group.h"
#include "base/text/units.h"
#include "variant/variant.h"

namespace moetune {
namespace {

std::vector<std::string> shared_knobs(const std::set<Candidate>& wrong, const std::set<Candidate>& right) {
  std::vector<std::string> shared;
  const Candidate& first = *wrong.begin();
  if (!std::ranges::all_of(wrong, [&](const Candidate& one) { return same_variant(one, first); })) return shared;
  for (size_t i = 0; i < first.values.size(); ++i) {
    const auto has_it = [&](const Candidate& one) {
      return same_variant(one, first) && one.values[i] == first.values[i];
    };
    if (std::ranges::all_of(wrong, has_it) && !std::ranges::all_of(right, has_it))
      shared.push_back(
          fmt::format("{}={}", first.variant->knobs[i].name, knob_text(first.variant->knobs[i], first.values[i])));
  }
  return shared;
}

}  // namespace

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
