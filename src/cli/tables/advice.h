// What a user of `check` may do next about what it found.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "check/judge.h"

namespace moetune {

/// Command lines that look closer at the table that was checked.
struct TableCommands {
  std::vector<std::string> bench, verify;
};

constexpr int kMostRounds = 10000;  // that --rounds takes

/// A line that begins with "Next"; "" where all is well or nothing helps. After a wrong result it is `commands.verify`,
/// after a regression `commands.bench`. Where nothing was decided it is the user's own command line `argv` with more
/// rounds, if those may help; else the command that made the table, which stands in the table's `tool`; else `argv`
/// again.
std::string advice(const CheckResult& result, const CheckRequest& request, const std::vector<std::string>& argv,
                   const Json& tool, const TableCommands& commands);

}  // namespace moetune
