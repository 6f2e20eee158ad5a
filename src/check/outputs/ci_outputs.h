// What `check` found, for continuous integration.
#pragma once
#include <string>

#include "base/json.h"
#include "check/finding.h"

namespace moetune {

/// When and where a check ran, and how long.
struct CheckRun {
  std::string timestamp;  // its begin, UTC: "2026-11-23T01:26:06"
  std::string hostname;
  double seconds = 0;
  Undecided undecided = Undecided::fail;
  std::string commit = {}, device = {}, regime = {};  // for the history
};

/// One test case per cell: failures are findings of exit code 1, errors those of exit code 4, which are skipped cases
/// with Undecided::pass. The mean is a case where there is one. A fault is a separate case with an error: cells after
/// it have not passed.
std::string junit_xml(const CheckResult& result, const CheckRun& run);

/// The winners' times for github-action-benchmark (tool: customSmallerIsBetter): [{"name": the cell's id, "unit": "µs",
/// "value", "range": "± 1.2", "extra": the verdict, the change and the candidate}]. Cells that were not measured are
/// not there.
Json benchmark_json(const CheckResult& result);

/// One line for each finding that is not good, wrong results first, as GitHub Actions shows beside a commit:
/// "::error title=...::" for what makes exit code 1 and for a fault, "::warning title=...::" for what is undecided.
std::string annotations(const CheckResult& result);

}  // namespace moetune
