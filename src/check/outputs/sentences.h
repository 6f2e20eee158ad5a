// What `check` found, in sentences for people. Its tables: cli/tables/check_output.h.
#pragma once
#include <string>
#include <vector>

#include "check/finding.h"

namespace moetune {

/// "+8.0 % ± 1.0 %"; "-50 % to +60 %" where the interval is wide.
std::string percent_text(const Estimate& change);

/// The same of a finding, of the time where that shows the regression; empty where nothing was measured.
std::string change_text(const CellFinding& finding);

/// "1.4 %": the smallest slowdown that would have been found; empty where nothing was measured.
std::string detectable_text(const CellFinding& finding);

/// The time before as `now` is compared with it, so that the change follows from the two: scaled by how much longer the
/// control takes now, if the ratio to it was judged. 0 = unknown.
double compared_seconds(const CellFinding& finding, const CheckResult& result);

/// What the change is measured by: "time", "cublas-loop", or "paired time" against another program.
std::string judged_by(const CellFinding& finding, const CheckResult& result);

/// "cell: reason" for each finding that needs one, wrong results first: failures, regressions, what is undecided, and a
/// machine that became slower.
std::vector<std::string> reasons(const CheckResult& result);

/// "The geometric mean over 3 cells changed by +0.1 % ± 0.3 %: equivalent; ..."; empty if there is none.
std::string mean_text(const CheckResult& result);

/// The result of a check in a sentence.
std::string sentence(const CheckResult& result);

}  // namespace moetune
