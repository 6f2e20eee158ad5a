// Origins, then cell by cell.
#include "check/differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/pretty.h"
#include "record/table/mergeable.h"

namespace moetune {
namespace {

constexpr std::string_view kChangeNames[] = {"within_noise", "faster", "slower", "untrusted", "other_rows"};

// Kernels are a part of the program: times with other kernels are what a comparison is for.
constexpr std::string_view kKernels = "identity.kernels";

using Values = std::map<std::string, std::string>;

// "identity.kernels" -> "\"f00d\"", and so on.
void flatten(const Json& json, const std::string& path, Values& values) {
  if (!json.is_object()) {
    values[path] = compact_json(json);
    return;
  }
  for (const auto& item : json.items())
    flatten(item.value(), path.empty() ? item.key() : path + "." + item.key(), values);
}

std::string value_of(const Values& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "nothing" : found->second;
}

void compare_environments(const Json& old_environment, const Json& new_environment, TableDifferences& result) {
  Values before, after;
  flatten(old_environment, "", before);
  flatten(new_environment, "", after);
  Values keys = before;
  keys.insert(after.begin(), after.end());
  for (const auto& [key, value] : keys) {
    const std::string was = value_of(before, key), is = value_of(after, key);
    if (was == is) continue;
    result.origin.push_back(fmt::format("environment, {}: {} in the old table, {} in the new one", key, was, is));
    result.times_compared = result.times_compared && key == kKernels;
  }
}

void compare_origins(const TunedTable& old_table, const TunedTable& new_table, TableDifferences& result) {
  if (!same_model(old_table.device, new_table.device)) {
    result.times_compared = false;
    result.origin.push_back(fmt::format("device: {} in the old table, {} in the new one", model_text(old_table.device),
                                        model_text(new_table.device)));
  }
  if (old_table.regime != new_table.regime) {
    result.times_compared = false;
    result.origin.push_back(
        fmt::format("regime: {} in the old table, {} in the new one", name(old_table.regime), name(new_table.regime)));
  }
  compare_environments(old_table.environment, new_table.environment, result);
}

// The logarithm of a ratio of independent medians is as uncertain as the two logarithms together.
Estimate ratio_of(const Estimate& after, const Estimate& before) {
  const double ratio = after.value / before.value;
  const double down = std::hypot(std::log(after.value / after.low), std::log(before.high / before.value));
  const double up = std::hypot(std::log(after.high / after.value), std::log(before.value / before.low));
  return {ratio, ratio * std::exp(-down), ratio * std::exp(up)};
}

void compare_times(CellDifference& cell) {
  const Entry &before = *cell.old_entry, &after = *cell.new_entry;
  cell.ratio = ratio_of(after.measurement.time, before.measurement.time);
  if (before.m_sizes != after.m_sizes)
    cell.time = TimeChange::other_rows;
  else if (!distrust(before).empty() || !distrust(after).empty())
    cell.time = TimeChange::untrusted;
  else
    cell.time = cell.ratio.low > 1    ? TimeChange::slower
                : cell.ratio.high < 1 ? TimeChange::faster
                                      : TimeChange::within_noise;
}

CellDifference compared(const Entry& before, const Entry& after, bool times) {
  CellDifference cell{.old_entry = &before, .new_entry = &after};
  const bool both_won = before.skipped.empty() && after.skipped.empty();
  cell.winner_changed =
      both_won ? before.candidate != after.candidate : before.skipped.empty() != after.skipped.empty();
  if (both_won && times) compare_times(cell);
  return cell;
}

}  // namespace

std::string_view name(TimeChange change) { return kChangeNames[static_cast<size_t>(change)]; }

bool CellDifference::differs() const {
  const bool time_differs = time && *time != TimeChange::within_noise && *time != TimeChange::untrusted;
  return !old_entry || !new_entry || winner_changed || time_differs;
}

bool TableDifferences::any() const {
  return !origin.empty() || std::ranges::any_of(cells, [](const CellDifference& cell) { return cell.differs(); });
}

TableDifferences differences(const TunedTable& old_table, const TunedTable& new_table) {
  TableDifferences result;
  compare_origins(old_table, new_table, result);
  std::map<std::string, const Entry*> left;
  for (const Entry& entry : new_table.entries) left.emplace(id(entry.cell), &entry);
  for (const Entry& entry : old_table.entries) {
    const auto found = left.find(id(entry.cell));
    if (found == left.end()) {
      result.cells.push_back({.old_entry = &entry});
      continue;
    }
    result.cells.push_back(compared(entry, *found->second, result.times_compared));
    left.erase(found);
  }
  for (const Entry& entry : new_table.entries)
    if (left.contains(id(entry.cell))) result.cells.push_back({.new_entry = &entry});
  return result;
}

}  // namespace moetune
