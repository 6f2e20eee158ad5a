// The contenders of each cell.
#include "cli/options/contenders.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "variant/variant.h"

namespace moetune {

void declare(OptionSet& set, ContenderOptions& options) {
  set.group("Candidates");
  set.list("--candidate", options.candidates, "TEXT",
           "A candidate, such as \"mma block_m=128 stages=4\"; other knobs have the default's values");
  set.value("--table", options.table, "FILE",
            "Take the winners of a tuned table; the options of cells pick among its cells");
  set.group("Options");
}

void add_entrant(CellWork& work, const std::string& role, const Contender& contender) {
  for (Entrant& entrant : work.entrants)
    if (entrant.contender == contender) {
      if (entrant.role != role) entrant.role += "+" + role;
      return;
    }
  work.entrants.push_back({.role = role, .contender = contender});
}

void complete_entrants(CellWork& work, const Problem& problem, const DeviceInfo& device) {
  for (Entrant& entrant : work.entrants) {
    Contender& contender = entrant.contender;
    if (contender.baseline.empty()) contender.candidate = complete(contender.candidate, problem, device);
  }
}

SearchSpace usual_space(const Catalog& catalog) { return load_space("quick", catalog); }

void name_entrants(CellWork& work, const SearchSpace& usual, const Problem& problem, const DeviceInfo& device) {
  const Candidate fallback = default_candidate(usual, problem, device);
  for (auto& [role, contender, name] : work.entrants)
    name =
        contender.baseline.empty() ? short_text(contender.candidate, &fallback, problem, device) : contender.baseline;
}

std::string reason_of(const EntrantResult& result) {
  return fmt::format("{}, {}: {}: {}", id(result.cell), result.entrant.name, name(result.status), result.reason);
}

std::vector<CellWork> make_work(const CellOptions& cells, const ContenderOptions& contenders, const Catalog& catalog,
                                const Terminal& terminal) {
  const std::vector<Candidate> candidates = parse_candidates(contenders.candidates, catalog);
  std::vector<CellWork> work;
  if (contenders.table.empty()) {
    work = mapped(make_cells(cells), [](const Cell& cell) { return CellWork{cell, {}}; });
  } else {
    TunedTable table = read_table(contenders.table, catalog);
    pick_entries(table, contenders.table, cells);
    for (const Entry& entry : table.entries) {
      work.push_back({entry.cell, {}});
      if (entry.skipped.empty())
        add_entrant(work.back(), "winner", {.baseline = "", .candidate = entry.candidate});
      else
        warn(terminal, fmt::format("{}: the table has no winner: {}", id(entry.cell), entry.skipped));
    }
  }
  for (CellWork& one : work)
    for (const Candidate& candidate : candidates)
      add_entrant(one, "candidate", {.baseline = "", .candidate = candidate});
  return work;
}

std::vector<Cell> cells_of(const std::vector<CellWork>& work) { return mapped(work, &CellWork::cell); }

void require_candidates(const std::vector<Cell>& cells, const SearchSpace& space, const DeviceInfo& device,
                        const std::string& hint) {
  Shape before;
  for (const Cell& cell : cells) {
    if (cell.shape == before) continue;  // legality does not depend on rows
    before = cell.shape;
    static_cast<void>(
        default_candidate(space, make_problem(cell), device));        // throws where no variant is for the device
    const Enumeration found = draw(space, cell.shape, device, 1, 0);  // looks no further than the first legal one
    if (!found.legal.empty()) continue;
    const auto reason = std::max_element(found.pruned.begin(), found.pruned.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    throw request_error(fmt::format("{}: no candidate of the space '{}' is legal: {}", id(cell), space.name,
                                    reason == found.pruned.end() ? "it has none" : reason->first),
                        hint);
  }
}

}  // namespace moetune
