// Counts, changes and reasons in words.
#include "check/outputs/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/text/text.h"
#include "base/text/units.h"

namespace moetune {
namespace {

// Correctness first.
int severity(const CellFinding& finding) {
  return finding.finding == Finding::wrong_result ? 3
         : finding.finding == Finding::failed     ? 2
         : finding.finding == Finding::regressed  ? 1
                                                  : 0;
}

// "1 wrong result, 2 regressions over 5 %, 1 undecided"
std::string tally(const CheckResult& result) {
  const auto count = [&](Finding finding) {
    return std::ranges::count(result.findings, finding, &CellFinding::finding);
  };
  std::vector<std::string> parts;
  if (const auto wrong = count(Finding::wrong_result)) parts.push_back(counted(wrong, "wrong result"));
  if (const auto failed = count(Finding::failed)) parts.push_back(counted(failed, "failure"));
  if (const auto slower = count(Finding::regressed))
    parts.push_back(fmt::format("{} over {:g} %", counted(slower, "regression"), 100 * result.threshold));
  if (const auto open = count(Finding::inconclusive) + count(Finding::untrusted))
    parts.push_back(fmt::format("{} undecided", open));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string worst_text(const std::vector<CellFinding>& findings) {
  const auto worst = std::ranges::max_element(
      findings, {}, [](const CellFinding& finding) { return std::pair(severity(finding), finding.change.value); });
  if (worst->finding == Finding::regressed)
    return fmt::format("the worst is {}, {}", finding_id(*worst), change_text(*worst));
  return fmt::format("{}: {}", finding_id(*worst), name(worst->finding));
}

}  // namespace

std::string percent_text(const Estimate& change) {
  const double side = half_width(change);
  if (side > kUncertainTime) return fmt::format("{:+.0f} % to {:+.0f} %", 100 * change.low, 100 * change.high);
  return fmt::format("{:+.1f} % ± {:.1f} %", 100 * change.value, 100 * side);
}

std::string change_text(const CellFinding& finding) {
  if (!was_measured(finding)) return "";
  return percent_text(judged_by_time(finding) ? finding.time_change : finding.change);
}

std::string detectable_text(const CellFinding& finding) {
  constexpr double kMaxPercent = 1000;  // a larger figure means nothing
  const double percent = 100 * finding.detectable;
  if (was_measured(finding) && percent > kMaxPercent) return fmt::format("> {:.0f} %", kMaxPercent);
  return was_measured(finding) ? fmt::format("{:.{}f} %", percent, percent < 9.95 ? 1 : 0) : "";
}

double compared_seconds(const CellFinding& finding, const CheckResult& result) {
  const bool by_ratio = result.against.empty() && !judged_by_time(finding) && finding.control_before_seconds > 0;
  return finding.before_seconds *
         (by_ratio && was_measured(finding) ? finding.control_now_seconds / finding.control_before_seconds : 1);
}

std::string judged_by(const CellFinding& finding, const CheckResult& result) {
  if (!result.against.empty()) return "paired time";
  return judged_by_time(finding) ? "time" : finding.control;
}

std::vector<std::string> reasons(const CheckResult& result) {
  std::vector<const CellFinding*> listed;
  for (const CellFinding& finding : result.findings)
    if (is_no(finding.finding) || is_open(finding.finding) || is_slower_machine(finding)) listed.push_back(&finding);
  std::ranges::stable_sort(listed, std::greater(), [](const CellFinding* finding) { return severity(*finding); });
  return mapped(listed, [](const CellFinding* one) { return fmt::format("{}: {}", finding_id(*one), one->reason); });
}

std::string mean_text(const CheckResult& result) {
  if (!result.mean) return "";
  const MeanFinding& mean = *result.mean;
  return fmt::format("The geometric mean over {} cells changed by {}: {}; a change of {:.1f} % would have been found.",
                     mean.cells, percent_text(mean.change), name(mean.finding), 100 * mean.detectable);
}

std::string sentence(const CheckResult& result) {
  const std::vector<CellFinding>& findings = result.findings;
  if (findings.empty())
    return result.fault.empty() ? "Nothing was checked: the table has no winner." : "Nothing was checked.";
  const auto count = [&](bool (*holds)(Finding)) {
    return std::ranges::count_if(findings, [&](const CellFinding& finding) { return holds(finding.finding); });
  };
  const std::string cells = counted(findings.size(), "cell");
  const std::string limit = fmt::format("{:g} %", 100 * result.threshold);
  if (count(is_no) > 0) return fmt::format("{}: {}; {}.", cells, tally(result), worst_text(findings));
  const auto open = count(is_open);
  const std::string undecided = open > 0 ? fmt::format(", {} undecided", open) : "";
  if (result.mean && is_no(result.mean->finding))
    return fmt::format("{}: their geometric mean regressed by more than {}, but no single cell{}.", cells, limit,
                       undecided);
  if (open > 0) return fmt::format("{}: no regression over {} was found{}.", cells, limit, undecided);
  const auto slower = std::ranges::count_if(findings, is_slower_machine);
  return fmt::format("{}: none is slower than {} by more than {}{}.", cells,
                     result.against.empty() ? "its table says" : "with " + result.against, limit,
                     slower > 0 ? fmt::format(", except {} whose control is slower too", slower) : "");
}

}  // namespace moetune
