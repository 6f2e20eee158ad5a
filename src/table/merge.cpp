// One table from several.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "table/mergeable.h"
#include "table/pretty.h"
#include "table/table.h"

namespace moetune {
namespace {

void require_joinable(const TunedTable& a, const TunedTable& b) {
  require_mergeable("tables", {a.device, a.environment, a.regime}, {b.device, b.environment, b.regime});
}

bool faster(const Entry& a, const Entry& b) {
  if (a.skipped.empty() != b.skipped.empty()) return a.skipped.empty();
  return a.skipped.empty() && a.measurement.seconds < b.measurement.seconds;
}

// Equal as they are written to a file.
bool equal(const Entry& a, const Entry& b, const TunedTable& table) {
  const auto alone = [&](const Entry& entry) {
    TunedTable one = table;
    one.entries = {entry};
    return compact_json(to_json(one));
  };
  return alone(a) == alone(b);
}

std::vector<std::string> sweep_of(const TunedTable& table) {
  std::vector<std::string> sweep = table.sweep;
  for (const Entry& entry : table.entries) sweep.push_back(id(entry.cell));
  return sweep;
}

void put_in_order(TunedTable& table, const std::vector<std::string>& sweep) {
  std::map<std::string, size_t> places;
  for (const std::string& cell : sweep) places.emplace(cell, places.size());
  std::stable_sort(table.entries.begin(), table.entries.end(),
                   [&](const Entry& a, const Entry& b) { return places.at(id(a.cell)) < places.at(id(b.cell)); });
  table.sweep = table.entries.size() == sweep.size() ? std::vector<std::string>() : sweep;
}

}  // namespace

Merged merge(const std::vector<TunedTable>& tables, const std::string& prefer) {
  const std::vector<std::string> known = {"fastest", "first", "last"};
  if (!prefer.empty() && std::find(known.begin(), known.end(), prefer) == known.end())
    throw unknown_word("preference", prefer, known);
  if (tables.empty()) throw request_error("nothing to merge", "name two tables or more");
  Merged merged{.table = tables[0], .conflicts = {}};
  merged.table.entries.clear();
  TunedTable bare = merged.table;
  std::map<std::string, size_t> places;
  std::vector<std::vector<std::string>> sweeps;
  for (const TunedTable& table : tables) {
    require_joinable(tables[0], table);
    sweeps.push_back(sweep_of(table));
    for (const Entry& entry : table.entries) {
      const std::string cell = id(entry.cell);
      const auto [place, fresh] = places.emplace(cell, merged.table.entries.size());
      if (fresh) {
        merged.table.entries.push_back(entry);
        continue;
      }
      Entry& kept = merged.table.entries[place->second];
      if (equal(kept, entry, bare)) continue;
      if (std::find(merged.conflicts.begin(), merged.conflicts.end(), cell) == merged.conflicts.end())
        merged.conflicts.push_back(cell);
      if (prefer == "last" || (prefer == "fastest" && faster(entry, kept))) kept = entry;
    }
  }
  put_in_order(merged.table, joined_sweep(sweeps));
  return merged;
}

}  // namespace moetune
