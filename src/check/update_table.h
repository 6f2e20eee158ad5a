// A table with the times of a check.
#pragma once
#include <string>
#include <vector>

#include "check/finding.h"

namespace moetune {

struct UpdatedTable {
  TunedTable table;
  std::vector<std::string> kept = {};             // "cell: why its times stay"
  std::vector<std::string> dropped_choices = {};  // titles of layers whose robust choices were made from other times
};

/// The table with the winners' and rivals' times of `result`, for which every rival was measured; the winners stay.
/// Rivals that don't run here any more are removed. A cell that was not measured, or too noisily to compare with,
/// stays as it is. `update` gets the cells that changed, and becomes part of the table. Throws Exit::machine where the
/// table would mix times of two environments.
UpdatedTable update_table(const TunedTable& table, const CheckResult& result, const Json& environment, Update update);

}  // namespace moetune
