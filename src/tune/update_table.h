// A table whose times are replaced by those of a check.
#pragma once
#include <string>
#include <vector>

#include "table/table.h"
#include "tune/judge.h"

namespace moetune {

struct UpdatedTable {
  TunedTable table;
  std::vector<std::string> kept;             // "cell: why its times stay"
  std::vector<std::string> dropped_choices;  // titles of layers whose robust choices rest on other times
};

/// The table with the winners' and rivals' times of `result`, for which every rival was measured; the winners stay.
/// A rival that does not run here any more goes. A cell that was not measured, or too noisily to be a baseline, keeps
/// what it has. `update` gets the cells that changed and is kept in the table. Throws Exit::machine where times of both
/// environments would stand side by side.
UpdatedTable update_table(const TunedTable& table, const CheckResult& result, const Json& environment, Update update);

}  // namespace moetune
