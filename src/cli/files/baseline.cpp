// Which times were replaced, in words.
#include "cli/files/baseline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/file.h"
#include "cli/text/wording.h"
#include "check/update_table.h"

namespace moetune {

Exit update_baseline(const Baseline& baseline, const TunedTable& whole, const CheckResult& result, const CheckRun& run,
                     const Json& environment, const Invocation& invocation) {
  KeptFile file(baseline.file);
  file.take_over();
  const UpdatedTable updated =
      update_table(whole, result, environment,
                   {.date = run.timestamp, .reason = baseline.reason, .tool = tool_json(invocation.argv), .cells = {}});
  for (const std::string& kept : updated.kept) warn(invocation.terminal, "times are not updated: " + kept);
  for (const std::string& layer : updated.dropped_choices)
    warn(invocation.terminal, fmt::format("the robust choices of {} are dropped, because they use older times: make "
                                          "them again with tune --append --choose",
                                          layer));
  const size_t cells = result.findings.size() - updated.kept.size();
  if (cells > 0) write_table(file, updated.table);
  note(invocation.terminal, fmt::format("{}: {} updated", baseline.file, cells_done(cells, result.findings.size())));
  const auto wrong = [](const CellFinding& finding) {
    return finding.finding == Finding::wrong_result || finding.finding == Finding::failed;
  };
  if (std::ranges::any_of(result.findings, wrong)) return Exit::no;
  return updated.kept.empty() || run.undecided == Undecided::pass ? Exit::yes : Exit::inconclusive;
}

}  // namespace moetune
