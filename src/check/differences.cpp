// Origins, then cell by cell.
#include "check/differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "check/significance.h"
#include "record/table/table.h"

namespace moetune {
namespace {

constexpr std::string_view kChangeNames[] = {"within_noise", "faster", "slower", "untrusted", "other_rows"};

// Kernels are a part of the program: times with other kernels are what a comparison is for.
constexpr std::string_view kKernels = "identity.kernels";

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
  for (const auto& [key, was, is] : value_differences(old_table.environment, new_table.environment)) {
    result.origin.push_back(fmt::format("environment, {}: {} in the old table, {} in the new one", key, was, is));
    result.times_compared = result.times_compared && key == kKernels;
  }
}

// By the comparison of `check`.
void compare_times(CellDifference& cell) {
  const Entry &before = *cell.old_entry, &after = *cell.new_entry;
  const Estimate change = change_of(after.measurement.time, before.measurement.time);
  cell.ratio = {std::exp(change.value), std::exp(change.low), std::exp(change.high)};
  cell.time = before.m_sizes != after.m_sizes                         ? TimeChange::other_rows
              : !distrust(before).empty() || !distrust(after).empty() ? TimeChange::untrusted
              : change.low > 0                                        ? TimeChange::slower
              : change.high < 0                                       ? TimeChange::faster
                                                                      : TimeChange::within_noise;
}

CellDifference compared(const Entry& before, const Entry& after, bool times) {
  CellDifference cell{.cell = before.cell, .old_entry = &before, .new_entry = &after};
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
  return is_alone() || winner_changed || time_differs;
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
      result.cells.push_back({.cell = entry.cell, .old_entry = &entry});
      continue;
    }
    result.cells.push_back(compared(entry, *found->second, result.times_compared));
    left.erase(found);
  }
  for (const Entry& entry : new_table.entries)
    if (left.contains(id(entry.cell))) result.cells.push_back({.cell = entry.cell, .new_entry = &entry});
  return result;
}

}  // namespace moetune
