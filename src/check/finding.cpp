// Which findings are bad, and what the exit code says of them.
#include "check/finding.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moetune {
std::string_view name(Finding finding) {
  constexpr std::array<std::string_view, 7> kNames = {"equivalent",   "improved", "regressed", "inconclusive",
                                                      "wrong_result", "failed",   "untrusted"};
  return kNames.at(static_cast<size_t>(finding));
}

bool is_no(Finding finding) {
  return finding == Finding::regressed || finding == Finding::wrong_result || finding == Finding::failed;
}

bool is_open(Finding finding) { return finding == Finding::inconclusive || finding == Finding::untrusted; }

bool was_measured(const CellFinding& finding) { return finding.rounds > 0; }

bool judged_by_time(const CellFinding& finding) {
  return (finding.finding == Finding::regressed || finding.finding == Finding::untrusted) &&
         finding.by_ratio == Finding::inconclusive && finding.by_time == Finding::regressed;
}

bool is_slower_machine(const CellFinding& finding) {
  return (finding.finding == Finding::equivalent || finding.finding == Finding::improved) &&
         finding.by_time == Finding::regressed;
}

std::string finding_id(const CellFinding& finding) {
  return id(finding.cell) + (finding.kernel.empty() ? "" : " " + finding.kernel);
}

int exit_code(const CheckResult& result, Undecided undecided) {
  if (result.mean && is_no(result.mean->finding)) return static_cast<int>(Exit::no);
  Exit code = result.findings.empty() ? Exit::inconclusive : Exit::yes;
  for (const CellFinding& finding : result.findings) {
    if (is_no(finding.finding)) return static_cast<int>(Exit::no);
    if (is_open(finding.finding) && undecided == Undecided::fail) code = Exit::inconclusive;
  }
  return static_cast<int>(code);
}

CellFinding settled(CellFinding finding, Finding what, std::string reason, Remedy remedy) {
  finding.finding = what;
  finding.remedy = remedy;
  finding.reason = std::move(reason);
  return finding;
}

}  // namespace moetune
