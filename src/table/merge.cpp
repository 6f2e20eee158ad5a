// One table from several.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "table/pretty.h"
#include "table/table.h"

namespace moetune {
namespace {

// GPUs of one model count as one device, so that tables tuned side by side on the cards of a host can be merged.
void require_same_device(const DeviceInfo& a, const DeviceInfo& b) {
  if (a.kind == b.kind && a.name == b.name && a.compute_capability == b.compute_capability &&
      a.processors == b.processors)
    return;
  const auto told = [](const DeviceInfo& device) {
    return fmt::format("{} with {} {}", device.name, device.processors,
                       device.kind == DeviceKind::cuda ? "SMs" : "threads");
  };
  throw machine_error(fmt::format("tables of different devices don't merge: {}, and {}", told(a), told(b)),
                      "keep one table a device");
}

void require_same_environment(const TunedTable& a, const TunedTable& b) {
  if (a.regime != b.regime)
    throw machine_error(fmt::format("the regimes {} and {} don't compare", a.regime, b.regime),
                        "tune both in the same regime");
  const auto identity = [](const TunedTable& table) {
    return table.environment.is_object() ? table.environment.value("identity", Json()) : Json();
  };
  const Json first = identity(a), second = identity(b);
  if (first != second)
    throw machine_error(
        fmt::format("the environments don't compare: {} and {}", compact_json(first), compact_json(second)),
        "tune those cells again in one environment");
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
  for (const TunedTable& table : tables) {
    require_same_device(tables[0].device, table.device);
    require_same_environment(tables[0], table);
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
  return merged;
}

}  // namespace moetune
