// What `check` found, for people (Markdown), for a CI (JUnit XML) and for a shell (exit code).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/grid.h"
#include "base/units.h"
#include "tune/judge.h"

namespace moetune {
namespace {

bool is_no(Finding finding) {
  return finding == Finding::regressed || finding == Finding::wrong_result || finding == Finding::failed;
}

bool is_open(Finding finding) { return finding == Finding::inconclusive || finding == Finding::untrusted; }

bool was_measured(const CellFinding& finding) { return finding.rounds > 0; }

std::string change_text(const CellFinding& finding) {
  if (!was_measured(finding)) return "";
  const double middle = 100 * finding.change;
  const double side = 50 * (finding.change_interval.high - finding.change_interval.low);
  return fmt::format("{:+.1f} % ± {:.1f} %", middle, side);
}

// XML 1.0 has no way to write most control characters.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
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
      default:
        safe += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? ' ' : c;
    }
  return safe;
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
  if (bad == 0 && open == 0)
    return fmt::format("{}: none is slower than its table says by more than {}.", cells, limit);
  if (bad == 0) return fmt::format("{}: no regression over {} was found{}.", cells, limit, undecided);
  const auto worst = std::max_element(findings.begin(), findings.end(), [](const CellFinding& a, const CellFinding& b) {
    return std::pair(is_no(a.finding), a.change) < std::pair(is_no(b.finding), b.change);
  });
  const std::string worst_text = worst->finding == Finding::regressed
                                     ? fmt::format("the worst is {}, {}", id(worst->cell), change_text(*worst))
                                     : fmt::format("{}: {}", id(worst->cell), name(worst->finding));
  return fmt::format("{}: {} failed at a threshold of {}{}; {}.", cells, bad, limit, undecided, worst_text);
}

}  // namespace

std::string_view name(Finding finding) {
  constexpr std::array<std::string_view, 7> kNames = {"equivalent",   "improved", "regressed", "inconclusive",
                                                      "wrong_result", "failed",   "untrusted"};
  return kNames.at(static_cast<size_t>(finding));
}

int exit_code(const std::vector<CellFinding>& findings) {
  Exit code = findings.empty() ? Exit::inconclusive : Exit::yes;
  for (const CellFinding& finding : findings) {
    if (is_no(finding.finding)) return static_cast<int>(Exit::no);
    if (is_open(finding.finding)) code = Exit::inconclusive;
  }
  return static_cast<int>(code);
}

std::string markdown(const std::vector<CellFinding>& findings, double threshold, int columns,
                     const std::string& fault) {
  Grid grid{{{"cell"}, {"before", true}, {"now", true}, {"change", true}, {"by"}, {"verdict"}}, {}};
  for (const CellFinding& finding : findings)
    grid.rows.push_back({id(finding.cell), format_time(finding.before_seconds),
                         was_measured(finding) ? format_time(finding.now.seconds) : "", change_text(finding),
                         finding.control, std::string(name(finding.finding))});
  std::string text = fitted(grid, columns);
  std::string reasons;
  for (const CellFinding& finding : findings)
    if (finding.finding != Finding::equivalent && finding.finding != Finding::improved)
      reasons += fmt::format("- {}: {}\n", markdown_text(id(finding.cell)), markdown_text(finding.reason));
  if (!reasons.empty()) text += "\n" + reasons;
  return text + "\nThe change is that of the paired ratio to the control, not of the times themselves.\n" +
         sentence(findings, threshold, fault.empty()) + "\n" + cut_short(fault);
}

std::string junit_xml(const std::vector<CellFinding>& findings, const std::string& fault) {
  size_t failures = 0, skipped = 0;
  std::string cases;
  for (const CellFinding& finding : findings) {
    const std::string kind = is_no(finding.finding) ? "failure" : is_open(finding.finding) ? "skipped" : "";
    failures += is_no(finding.finding);
    skipped += is_open(finding.finding);
    const std::string head =
        fmt::format("  <testcase classname=\"moetune.check\" name=\"{}\"", escaped(id(finding.cell)));
    if (kind.empty()) {
      cases += head + "/>\n";
      continue;
    }
    const std::string type = kind == "failure" ? fmt::format(" type=\"{}\"", name(finding.finding)) : "";
    cases += fmt::format("{}>\n    <{} message=\"{}: {}\"{}/>\n  </testcase>\n", head, kind, name(finding.finding),
                         escaped(finding.reason), type);
  }
  const size_t errors = fault.empty() ? 0 : 1;
  if (errors > 0)
    cases += fmt::format(
        "  <testcase classname=\"moetune.check\" name=\"the cells left\">\n    <error message=\"{}\"/>\n  "
        "</testcase>\n",
        escaped(fault));
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"moetune check\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n{}</testsuite>\n",
      findings.size() + errors, failures, errors, skipped, cases);
}

}  // namespace moetune
