// `check --update`: the table of a check gets its times.
#pragma once
#include <string>

#include "base/error.h"
#include "cli/command.h"
#include "tune/ci_report.h"

namespace moetune {

struct Baseline {
  std::string file;    // is replaced
  std::string reason;  // is kept in it
};

/// Writes `whole`, the table in the file, with the times of `result`; tells which cells keep theirs, and why. Returns
/// the exit code: no where a winner is wrong or fails, inconclusive where others keep their times (yes where that may
/// pass). Errors as of update_table.
Exit update_baseline(const Baseline& baseline, const TunedTable& whole, const CheckResult& result, const CheckRun& run,
                     const Json& environment, const Invocation& invocation);

}  // namespace moetune
