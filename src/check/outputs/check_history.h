// A check in the history of checks, and what changed there lately.
#pragma once
#include <string>
#include <vector>

#include "check/outputs/ci_outputs.h"
#include "record/history.h"

namespace moetune {

/// The run as a line of a history: device and regime are those of the check.
HistoryRun history_run(const CheckResult& result, const CheckRun& run);

/// "NAME: +5.1 % since ...": the kernels on the device of the last run whose level changed in its last ten runs.
std::vector<std::string> recent_changes(const std::vector<HistoryRun>& runs);

}  // namespace moetune
