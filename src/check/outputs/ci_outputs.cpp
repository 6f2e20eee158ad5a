// JUnit XML, JSON of github-action-benchmark, and annotations of GitHub Actions.
#include "check/outputs/ci_outputs.h"

#include <fmt/format.h>

#include <map>

#include "base/text/text.h"
#include "check/outputs/sentences.h"

namespace moetune {
namespace {

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
    if (!was_measured(finding) || finding.finding == Finding::untrusted) continue;
    list.push_back(
        {{"name", finding_id(finding)},
         {"unit", "µs"},
         {"value", rounded(finding.now.time.value * 1e6)},
         {"range", fmt::format("± {:.3g}", half_width(finding.now.time) * 1e6)},
         {"extra", fmt::format("{}: {}\n{}", name(finding.finding), change_text(finding), finding.candidate)}});
  }
  return list;
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
