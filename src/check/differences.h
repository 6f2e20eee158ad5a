// What differs between two tuned tables. Measures nothing: whether this machine became slower is for `check`.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/table/table.h"

namespace moetune {

/// How sure a change of a time is. within_noise: the interval of the ratio contains 1. untrusted: one of the entries is
/// too noisy to judge by. other_rows: the routing of the cell gave other rows.
enum class TimeChange { within_noise, faster, slower, untrusted, other_rows };
std::string_view name(TimeChange change);

/// One cell of either table. The tables must outlive it.
struct CellDifference {
  Cell cell;
  const Entry *old_entry = nullptr, *new_entry = nullptr;  // null: the cell is only in the other table
  bool winner_changed = false;                             // another candidate, or a winner in one of the tables alone
  std::optional<TimeChange> time = {};                     // nothing where times are not compared or one has no winner
  Estimate ratio = {};                                     // new time over old time, where `time` has a value

  bool is_alone() const { return !old_entry || !new_entry; }
  /// Whether anything differs that noise does not explain.
  bool differs() const;
};

struct TableDifferences {
  std::vector<std::string> origin;    // sentences: device, regime and environment, where they differ
  bool times_compared = true;         // false: devices, regimes, or environments other than the kernels differ
  std::vector<CellDifference> cells;  // the old table's in its order, then those of the new one alone

  bool any() const;
};

/// The tables must outlive the result. GPUs of one model count as one device.
TableDifferences differences(const TunedTable& old_table, const TunedTable& new_table);

}  // namespace moetune
