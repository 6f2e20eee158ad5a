// `check --update`: writes the times of a check into its table.
#pragma once
#include <string>

#include "base/error.h"
#include "cli/commands/command.h"
#include "check/ci_report.h"

namespace moetune {

struct Baseline {
  std::string file;    // the table, which is replaced
  std::string reason;  // goes into the table
};

/// Writes `whole`, the table in the file, with the times of `result`; tells which cells keep theirs, and why. Returns
/// the exit code: no where a winner is wrong or fails, inconclusive where others keep their times (yes where that may
/// pass). Errors as of update_table.
Exit update_baseline(const Baseline& baseline, const TunedTable& whole, const CheckResult& result, const CheckRun& run,
                     const Json& environment, const Invocation& invocation);

}  // namespace moetune
