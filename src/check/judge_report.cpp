// What `check` found: in sentences, for a shell as an exit code, for continuous integration in JUnit XML, in JSON of
// github-action-benchmark and in annotations of GitHub Actions. Its tables: cli/tables/check_output.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text/grid.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "check/judge.h"

namespace moetune {
namespace {

bool was_measured(const CellFinding& finding) { return finding.rounds > 0; }

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

bool mean_regressed(const CheckResult& result) { return result.mean && result.mean->finding == Finding::regressed; }

// Escapes what would end a workflow command; in its title commas and colons too.
std::string command_text(const std::string& text, bool title) {
  std::string safe;
  for (const char c : text) {
    const bool ends = c == '%' || c == '\r' || c == '\n' || (title && (c == ':' || c == ','));
    safe += ends ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return safe;
}

std::string annotation(const std::string& kind, const std::string& title, const std::string& message) {
  return fmt::format("::{} title={}::{}\n", kind, command_text("moetune check: " + title, true),
                     command_text(message, false));
}

}  // namespace

bool is_no(Finding finding) {
  return finding == Finding::regressed || finding == Finding::wrong_result || finding == Finding::failed;
}

bool is_open(Finding finding) { return finding == Finding::inconclusive || finding == Finding::untrusted; }

std::string finding_id(const CellFinding& finding) {
  return id(finding.cell) + (finding.kernel.empty() ? "" : " " + finding.kernel);
}

bool is_told_by_time(const CellFinding& finding) {
  return (finding.finding == Finding::regressed || finding.finding == Finding::untrusted) &&
         finding.by_ratio == Finding::inconclusive && finding.by_time == Finding::regressed;
}

bool is_slower_machine(const CellFinding& finding) {
  return (finding.finding == Finding::equivalent || finding.finding == Finding::improved) &&
         finding.by_time == Finding::regressed;
}

std::string_view name(Finding finding) {
  constexpr std::array<std::string_view, 7> kNames = {"equivalent",   "improved", "regressed", "inconclusive",
                                                      "wrong_result", "failed",   "untrusted"};
  return kNames.at(static_cast<size_t>(finding));
}

int exit_code(const CheckResult& result, Undecided undecided) {
  if (mean_regressed(result)) return static_cast<int>(Exit::no);
  Exit code = result.findings.empty() ? Exit::inconclusive : Exit::yes;
  for (const CellFinding& finding : result.findings) {
    if (is_no(finding.finding)) return static_cast<int>(Exit::no);
    if (is_open(finding.finding) && undecided == Undecided::fail) code = Exit::inconclusive;
  }
  return static_cast<int>(code);
}

std::string percent_text(const Estimate& change) {
  const double side = half_width(change);
  if (side > kUncertainTime) return fmt::format("{:+.0f} % to {:+.0f} %", 100 * change.low, 100 * change.high);
  return fmt::format("{:+.1f} % ± {:.1f} %", 100 * change.value, 100 * side);
}

std::string change_text(const CellFinding& finding) {
  if (!was_measured(finding)) return "";
  return percent_text(is_told_by_time(finding) ? finding.time_change : finding.change);
}

constexpr double kMostPercent = 1000;  // a larger figure means nothing

std::string detectable_text(const CellFinding& finding) {
  const double percent = 100 * finding.detectable;
  if (was_measured(finding) && percent > kMostPercent) return fmt::format("> {:.0f} %", kMostPercent);
  return was_measured(finding) ? fmt::format("{:.{}f} %", percent, percent < 9.95 ? 1 : 0) : "";
}

double compared_seconds(const CellFinding& finding, const CheckResult& result) {
  const bool by_ratio = result.against.empty() && !is_told_by_time(finding) && finding.control_before_seconds > 0;
  return finding.before_seconds *
         (by_ratio && was_measured(finding) ? finding.control_now_seconds / finding.control_before_seconds : 1);
}

std::string judged_by(const CellFinding& finding, const CheckResult& result) {
  if (!result.against.empty()) return "paired time";
  return is_told_by_time(finding) ? "time" : finding.control;
}

std::vector<std::string> reasons(const CheckResult& result) {
  std::vector<const CellFinding*> told;
  for (const CellFinding& finding : result.findings)
    if (is_no(finding.finding) || is_open(finding.finding) || is_slower_machine(finding)) told.push_back(&finding);
  std::ranges::stable_sort(told, std::greater(), [](const CellFinding* finding) { return severity(*finding); });
  return mapped(told, [](const CellFinding* one) { return fmt::format("{}: {}", finding_id(*one), one->reason); });
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
  if (mean_regressed(result))
    return fmt::format("{}: their geometric mean regressed by more than {}, but no single cell{}.", cells, limit,
                       undecided);
  if (open > 0) return fmt::format("{}: no regression over {} was found{}.", cells, limit, undecided);
  const auto slower = std::ranges::count_if(findings, is_slower_machine);
  return fmt::format("{}: none is slower than {} by more than {}{}.", cells,
                     result.against.empty() ? "its table says" : "with " + result.against, limit,
                     slower > 0 ? fmt::format(", except {} whose control is slower too", slower) : "");
}

std::string junit_xml(const CheckResult& result, const CheckRun& run) {
  const std::string open_kind = run.undecided == Undecided::fail ? "error" : "skipped";
  std::map<std::string, size_t> counts;
  std::string cases;
  const auto add = [&](const std::string& name, double seconds, const std::string& kind, const std::string& type,
                       const std::string& message) {
    ++counts[kind];
    cases +=
        fmt::format("  <testcase classname=\"moetune.check\" name=\"{}\" time=\"{:.3f}\"", html_text(name), seconds);
    const std::string typed = kind == "skipped" ? "" : fmt::format(" type=\"{}\"", type);
    cases += kind.empty()
                 ? "/>\n"
                 : fmt::format(">\n    <{} message=\"{}\"{}/>\n  </testcase>\n", kind, html_text(message), typed);
  };
  for (const CellFinding& finding : result.findings) {
    const std::string type(name(finding.finding));
    add(finding_id(finding), finding.seconds,
        is_no(finding.finding)                  ? "failure"
        : finding.finding == Finding::untrusted ? "skipped"
        : is_open(finding.finding)              ? open_kind
                                                : "",
        type, fmt::format("{}: {}", type, finding.reason));
  }
  if (result.mean)
    add("geometric mean", 0, is_no(result.mean->finding) ? "failure" : "", std::string(name(result.mean->finding)),
        mean_text(result));
  if (!result.fault.empty()) add("the cells left", 0, "error", "fault", result.fault);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"moetune check\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\" "
      "timestamp=\"{}\" hostname=\"{}\">\n{}</testsuite>\n",
      result.findings.size() + (result.mean ? 1 : 0) + (result.fault.empty() ? 0 : 1), counts["failure"],
      counts["error"], counts["skipped"], run.seconds, html_text(run.timestamp), html_text(run.hostname), cases);
}

Json benchmark_json(const CheckResult& result) {
  Json list = Json::array();
  for (const CellFinding& finding : result.findings) {
    if (finding.rounds == 0 || finding.finding == Finding::untrusted) continue;
    list.push_back(
        {{"name", finding_id(finding)},
         {"unit", "µs"},
         {"value", rounded(finding.now.time.value * 1e6)},
         {"range", fmt::format("± {:.3g}", half_width(finding.now.time) * 1e6)},
         {"extra", fmt::format("{}: {}\n{}", name(finding.finding), change_text(finding), finding.candidate)}});
  }
  return list;
}

HistoryRun history_run(const CheckResult& result, const CheckRun& run) {
  HistoryRun line{.date = run.timestamp, .commit = run.commit, .device = run.device, .regime = run.regime};
  for (const CellFinding& finding : result.findings)
    if (was_measured(finding))
      line.points.push_back({.name = finding_id(finding),
                             .finding = std::string(name(finding.finding)),
                             .time = finding.now.time,
                             .control = finding.control,
                             .control_seconds = finding.control_now_seconds});
  return line;
}

std::string annotations(const CheckResult& result) {
  std::string lines;
  const auto add = [&](bool (*holds)(Finding), const std::string& kind) {
    for (const Finding one :
         {Finding::wrong_result, Finding::failed, Finding::regressed, Finding::inconclusive, Finding::untrusted})
      for (const CellFinding& finding : result.findings)
        if (finding.finding == one && holds(one))
          lines += annotation(kind, std::string(name(one)), finding_id(finding) + ": " + finding.reason);
  };
  add(is_no, "error");
  if (result.mean && is_no(result.mean->finding)) lines += annotation("error", "geometric mean", mean_text(result));
  if (!result.fault.empty()) lines += annotation("error", "fault", result.fault);
  add(is_open, "warning");
  return lines;
}

}  // namespace moetune
