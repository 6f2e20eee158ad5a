// What `check` found out, for people: text of 80 columns. Markdown and exit codes: tune/judge.h. JUnit:
// tune/ci_report.h.
#pragma once
#include <string>
#include <vector>

#include "cli/text/console.h"
#include "check/judge.h"

namespace moetune {

/// Tables by layer, the reasons of findings that are not good, and the answer in a sentence, last. `verbose` tells what
/// each change is measured by and all knobs of the winners, which are those of `table`.
std::string findings_text(const CheckResult& result, const TunedTable& table, const Terminal& terminal, bool verbose);

}  // namespace moetune
