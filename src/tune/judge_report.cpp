// What `check` found, for people (Markdown), for a CI (JUnit XML) and for a shell (exit code).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/grid.h"
#include "base/text.h"
#include "base/units.h"
#include "tune/judge.h"

namespace moetune {
namespace {

bool is_no(Finding finding) {
  return finding == Finding::regressed || finding == Finding::wrong_result || finding == Finding::failed;
}

bool is_open(Finding finding) { return finding == Finding::inconclusive || finding == Finding::untrusted; }

bool was_measured(const CellFinding& finding) { return finding.rounds > 0; }

// "+8.0 % ± 1.0 %"; only the interval where it is too wide for one number.
std::string percent_text(double change, const Interval& interval) {
  const double side = (interval.high - interval.low) / 2;
  if (side > kUncertainTime) return fmt::format("{:+.0f} % to {:+.0f} %", 100 * interval.low, 100 * interval.high);
  return fmt::format("{:+.1f} % ± {:.1f} %", 100 * change, 100 * side);
}

std::string judged_by(const CellFinding& finding) { return is_told_by_time(finding) ? "time" : finding.control; }

// What XML 1.0 has no way to write (control characters) and what is not UTF-8 becomes printable first.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&apos;";
        break;
      case '\n':
      case '\t':
        safe += ' ';  // an attribute would lose it anyhow
        break;
      default:
        safe += c;
    }
  return safe;
}

}  // namespace

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

int exit_code(const std::vector<CellFinding>& findings, Undecided undecided) {
  Exit code = findings.empty() ? Exit::inconclusive : Exit::yes;
  for (const CellFinding& finding : findings) {
    if (is_no(finding.finding)) return static_cast<int>(Exit::no);
    if (is_open(finding.finding) && undecided == Undecided::fail) code = Exit::inconclusive;
  }
  return static_cast<int>(code);
}

std::string change_text(const CellFinding& finding) {
  if (!was_measured(finding)) return "";
  return is_told_by_time(finding) ? percent_text(finding.time_change, finding.time_change_interval)
                                  : percent_text(finding.change, finding.change_interval);
}

std::vector<std::string> reasons(const std::vector<CellFinding>& findings) {
  std::vector<std::string> told;
  for (const CellFinding& finding : findings)
    if ((finding.finding != Finding::equivalent && finding.finding != Finding::improved) || is_slower_machine(finding))
      told.push_back(fmt::format("{}: {}", id(finding.cell), finding.reason));
  return told;
}

std::string sentence(const std::vector<CellFinding>& findings, double threshold, bool whole) {
  if (findings.empty()) return whole ? "Nothing was checked: the table has no winner." : "Nothing was checked.";
  const auto count = [&](auto&& predicate) {
    return std::count_if(findings.begin(), findings.end(), [&](const CellFinding& f) { return predicate(f.finding); });
  };
  const auto bad = count(is_no), open = count(is_open);
  const std::string cells = fmt::format("{} {}", findings.size(), findings.size() == 1 ? "cell" : "cells");
  const std::string limit = fmt::format("{:g} %", 100 * threshold);
  const std::string undecided = open > 0 ? fmt::format(", {} undecided", open) : "";
  const auto slower = std::count_if(findings.begin(), findings.end(), is_slower_machine);
  if (bad == 0 && open == 0)
    return fmt::format("{}: none is slower than its table says by more than {}{}.", cells, limit,
                       slower > 0 ? fmt::format(", except {} whose control is slower too", slower) : "");
  if (bad == 0) return fmt::format("{}: no regression over {} was found{}.", cells, limit, undecided);
  const auto worst = std::max_element(findings.begin(), findings.end(), [](const CellFinding& a, const CellFinding& b) {
    return std::pair(is_no(a.finding), a.change) < std::pair(is_no(b.finding), b.change);
  });
  const std::string worst_text = worst->finding == Finding::regressed
                                     ? fmt::format("the worst is {}, {}", id(worst->cell), change_text(*worst))
                                     : fmt::format("{}: {}", id(worst->cell), name(worst->finding));
  return fmt::format("{}: {} failed at a threshold of {}{}; {}.", cells, bad, limit, undecided, worst_text);
}

std::string markdown(const std::vector<CellFinding>& findings, double threshold, const std::string& fault) {
  Grid grid{{{"cell"}, {"before", true}, {"now", true}, {"change", true}, {"by"}, {"verdict"}}, {}};
  for (const CellFinding& finding : findings)
    grid.rows.push_back({id(finding.cell), format_time(finding.before_seconds),
                         was_measured(finding) ? format_time(finding.now.seconds) : "", change_text(finding),
                         judged_by(finding), std::string(name(finding.finding))});
  std::string text = markdown(grid);
  const std::vector<std::string> told = reasons(findings);
  for (const std::string& reason : told)
    text += (&reason == told.data() ? "\n- " : "- ") + markdown_text(reason) + "\n";
  return text +
         "\nThe change is that of the ratio to the control named under 'by', or of the time itself where that is "
         "'time'.\n" +
         sentence(findings, threshold, fault.empty()) + "\n" + cut_short(fault);
}

std::string junit_xml(const std::vector<CellFinding>& findings, const CheckRun& run, const std::string& fault) {
  const std::string open_kind = run.undecided == Undecided::fail ? "error" : "skipped";
  std::map<std::string, size_t> counts;
  std::string cases;
  const auto add = [&](const std::string& name, double seconds, const std::string& kind, const std::string& type,
                       const std::string& message) {
    ++counts[kind];
    cases += fmt::format("  <testcase classname=\"moetune.check\" name=\"{}\" time=\"{:.3f}\"", escaped(name), seconds);
    if (kind.empty()) {
      cases += "/>\n";
      return;
    }
    const std::string typed = kind == "skipped" ? "" : fmt::format(" type=\"{}\"", type);
    cases += fmt::format(">\n    <{} message=\"{}\"{}/>\n  </testcase>\n", kind, escaped(message), typed);
  };
  for (const CellFinding& finding : findings) {
    const std::string type(name(finding.finding));
    add(id(finding.cell), finding.seconds,
        is_no(finding.finding)     ? "failure"
        : is_open(finding.finding) ? open_kind
                                   : "",
        type, fmt::format("{}: {}", type, finding.reason));
  }
  if (!fault.empty()) add("the cells left", 0, "error", "fault", fault);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"moetune check\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\" "
      "timestamp=\"{}\" hostname=\"{}\">\n{}</testsuite>\n",
      findings.size() + (fault.empty() ? 0 : 1), counts["failure"], counts["error"], counts["skipped"], run.seconds,
      escaped(run.timestamp), escaped(run.hostname), cases);
}

}  // namespace moetune
