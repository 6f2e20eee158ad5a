// Kernels are matched by the cell that they serve, or by name and knobs.
#include "check/two_packs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/group.h"
#include "base/text/text.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

std::vector<VariantPtr> packed(const Catalog& catalog) {
  return filtered(catalog.variants(), [](const VariantPtr& one) { return one->pack != nullptr; });
}

bool serves(const VariantPtr& variant, const Cell& cell) { return contains(variant->pack->cells, id(cell)); }

// The compiled candidate with the values of the knobs that both builds have; a knob of this one alone has its default.
std::optional<Candidate> candidate_in(const VariantPtr& variant, const Candidate& candidate) {
  Candidate found{.variant = variant, .values = variant->pack->fallback};
  for (const auto& [name, word] : knob_words(candidate)) try {
      const auto knob = std::ranges::find(variant->knobs, name, &Knob::name);
      if (knob != variant->knobs.end()) found = with_value(found, name, parse_knob(*knob, word));
    } catch (const Error&) {  // it has no such word
      return std::nullopt;
    }
  return variant->pack->candidates.contains(found.values) ? std::optional(found) : std::nullopt;
}

// The exported kernel that serves the entry's cell, else the candidate of a pack with the name and knobs of its winner.
std::optional<Candidate> winner_in(const Catalog& catalog, const Entry& entry) {
  for (const VariantPtr& variant : packed(catalog))
    if (serves(variant, entry.cell)) return Candidate{.variant = variant, .values = variant->pack->fallback};
  for (const VariantPtr& variant : packed(catalog))
    if (variant->name == entry.candidate.variant->name) return candidate_in(variant, entry.candidate);
  return std::nullopt;
}

// What `catalog` has alone: variants, and candidates of those that `other` has too.
std::set<std::string> alone_in(const Catalog& catalog, const Catalog& other) {
  std::set<std::string> texts;
  for (const VariantPtr& variant : packed(catalog)) {
    const std::vector<VariantPtr> theirs = packed(other);
    const auto same = std::ranges::find(theirs, variant->name, &Variant::name);
    if (same == theirs.end()) texts.insert(variant->name);
    for (const auto& [values, binary] : variant->pack->candidates)
      if (const Candidate one{.variant = variant, .values = values}; same != theirs.end() && !candidate_in(*same, one))
        texts.insert(text(one));
  }
  return texts;
}

}  // namespace

void match_packs(TunedTable& table, const Catalog& here, const std::string& our_name, const Catalog& there,
                 Against& against) {
  for (Entry& entry : table.entries) {
    const std::optional<Candidate> ours = winner_in(here, entry), theirs = winner_in(there, entry);
    const std::string kernel = text(entry.candidate);
    if (ours && theirs)
      against.winners[&entry] = *theirs;
    else if (!ours && !theirs)
      against.lacking[&entry] = {Finding::inconclusive,
                                 fmt::format("neither {} nor {} has {}", our_name, against.name, kernel)};
    else
      against.lacking[&entry] = {ours ? Finding::inconclusive : Finding::failed,
                                 fmt::format("{} is only in {}", kernel, ours ? our_name : against.name)};
    if (ours) entry.candidate = *ours;
  }
}

TunedTable table_of_packs(const std::vector<Cell>& cells, const Catalog& here, const Catalog& there,
                          const DeviceInfo& device, Regime regime) {
  TunedTable table;
  table.device = device, table.regime = regime;
  for (const Cell& cell : cells) {
    const Problem problem = make_problem(cell);
    std::set<std::string> names;
    std::string why = "there is no pack";
    for (const Catalog* catalog : {&here, &there})
      for (const VariantPtr& variant : packed(*catalog)) {
        const Candidate candidate = variant->fallback(problem, device);
        const auto reason = cannot_run(candidate, cell.shape, device);
        if (reason) why = *reason;
        if (reason || (!variant->pack->cells.empty() && !serves(variant, cell)) || !names.insert(variant->name).second)
          continue;
        table.entries.push_back({.cell = cell, .m_sizes = problem.routing.m_sizes, .candidate = candidate});
      }
    if (names.empty()) throw Error(Exit::no, fmt::format("{}: no kernel of either side: {}", id(cell), why));
  }
  return table;
}

std::string only_in(const Catalog& catalog, const std::string& name, const Catalog& other) {
  constexpr size_t kMost = 4;
  const std::set<std::string> alone = alone_in(catalog, other);
  return alone.empty() ? "" : fmt::format("only in {}: {}", name, some_of({alone.begin(), alone.end()}, kMost));
}

}  // namespace moetune
