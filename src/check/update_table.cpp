// Entry by entry.
#include "check/update_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace moetune {
namespace {

std::optional<Rival> rival_now(const Rival& then, const Entry& entry, const CellFinding& finding) {
  const auto now = std::ranges::find(finding.rivals_now, then.name, &Rival::name);
  if (now != finding.rivals_now.end()) return *now;
  if (then.name != "default" || then.candidate != entry.candidate) return std::nullopt;
  Rival itself = then;  // the winner is the default
  itself.measurement = finding.now;
  return itself;
}

Entry updated(const Entry& entry, const CellFinding& finding) {
  Entry now = entry;
  now.measurement = finding.now;
  now.verdict = finding.verdict;
  now.code = finding.code;
  now.ties.clear();  // of other times
  now.rivals.clear();
  for (const Rival& rival : entry.rivals)
    if (const auto one = rival_now(rival, entry, finding)) now.rivals.push_back(*one);
  return now;
}

}  // namespace

UpdatedTable update_table(const TunedTable& table, const CheckResult& result, const Json& environment, Update update) {
  UpdatedTable updates{.table = table};
  std::set<std::string> dropped;
  size_t old = 0;  // entries whose times stay
  for (Entry& entry : updates.table.entries) {
    if (!entry.skipped.empty()) continue;
    const auto finding = std::ranges::find(result.findings, entry.cell, &CellFinding::cell);
    if (finding == result.findings.end()) {
      ++old;
      continue;
    }
    const Entry now = updated(entry, *finding);
    if (const std::string fault = finding->rounds == 0 ? finding->reason : distrust(now); !fault.empty()) {
      updates.kept.push_back(fmt::format("{}: {}", id(entry.cell), fault));
      ++old;
      continue;
    }
    update.cells.push_back(id(entry.cell));
    const Shape shape = entry.cell.shape;
    if (std::ranges::any_of(table.choices, [&](const RobustChoice& choice) { return choice.shape() == shape; }))
      dropped.insert(title(shape));
    drop_choices(updates.table, shape);
    std::erase_if(updates.table.layers,
                  [&](const TunedLayer& layer) { return layer.up == entry.cell || layer.down == entry.cell; });
    entry = now;
  }
  if (old > 0 && !update.cells.empty()) try {
      require_mergeable("times", {table.device, table.environment, table.regime},
                        {table.device, environment, table.regime});
    } catch (const Error& error) {
      throw Error(error.exit(), fmt::format("{} of the table's cells keep their times: {}", old, error.what()),
                  "check and update all cells together, or tune the table anew");
    }
  updates.dropped_choices.assign(dropped.begin(), dropped.end());
  if (update.cells.empty()) return updates;
  if (old == 0) updates.table.environment = environment;
  updates.table.updates.push_back(std::move(update));
  return updates;
}

}  // namespace moetune
