// Text and JSON of what `verify` found out.
#include "cli/tables/verdicts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/units.h"
#include "cli/options/cells.h"
#include "cli/text/headed_tables.h"
#include "cli/text/output.h"
#include "record/fields.h"

namespace moetune {
namespace {

constexpr const char* kRepeatFor = "1m";
constexpr size_t kFew = 20;  // findings that are told one by one even where all are right

std::vector<EntrantResult> failures(const Verdicts& verdicts) {
  std::vector<EntrantResult> failed;
  std::copy_if(verdicts.findings.begin(), verdicts.findings.end(), std::back_inserter(failed), is_failed);
  return failed;
}

// "10 of 12 candidates right in 3 cells, 1 pruned; failed: 1 wrong_result; interrupted."
std::string answer(const Verdicts& verdicts, const std::vector<EntrantResult>& failed) {
  const int64_t pruned = std::count_if(verdicts.findings.begin(), verdicts.findings.end(), is_pruned);
  const int64_t ran = static_cast<int64_t>(verdicts.findings.size()) - pruned;
  std::string sentence = fmt::format("{} of {} right in {}", ran - static_cast<int64_t>(failed.size()),
                                     counted(ran, "candidate"), cells_done(verdicts.cells, verdicts.asked));
  if (pruned > 0) sentence += fmt::format(", {} pruned when compiled", pruned);
  int64_t launches = 0, same = 0;
  for (const EntrantResult& finding : verdicts.findings)
    if (const auto& r = finding.repetition) launches += r->launches, same += r->launches - r->different;
  if (launches > 0) sentence += fmt::format(", {} of {} more launches gave the same bits", same, launches);
  std::map<Status, int64_t> by_status;
  for (const EntrantResult& finding : failed) ++by_status[finding.status];
  const auto told = [](const auto& one) { return fmt::format("{} {}", one.second, name(one.first)); };
  if (!failed.empty()) sentence += fmt::format("; failed: {}", fmt::join(mapped(by_status, told), ", "));
  if (!verdicts.whole()) sentence += verdicts.fault.empty() ? "; interrupted" : "; cut short: " + verdicts.fault;
  return sentence + ".";
}

std::vector<std::string> verdict_row(const EntrantResult& finding, bool verbose) {
  const Verdict& verdict = finding.verdict;
  const bool ran = verdict.elements > 0;
  return {verbose ? text(finding.entrant.contender.candidate) : finding.entrant.name,
          finding.status == Status::ok ? "right" : std::string(name(finding.status)),
          ran ? fmt::format("{}", verdict.elements) : "",
          ran ? fmt::format("{:.1e}", verdict.normalised_error) : "",
          ran ? fmt::format("{:.2g}", verdict.max_ulps) : "",
          finding.repetition ? fmt::format("{}", finding.repetition->launches) : ""};
}

// A table a cell. Findings of a cell follow each other.
std::vector<HeadedTable> tables_of(const std::vector<EntrantResult>& findings, bool verbose) {
  const bool repeated =
      std::any_of(findings.begin(), findings.end(), [](const EntrantResult& f) { return f.repetition; });
  Grid empty{{{"candidate"}, {"result"}, {"elements", true}, {"error", true}, {"ulps", true}}, {}};
  if (repeated) empty.columns.push_back({"launches", true});
  std::vector<HeadedTable> tables;
  for (size_t i = 0; i < findings.size(); ++i) {
    if (i == 0 || findings[i - 1].cell != findings[i].cell) tables.push_back({cell_heading(findings[i].cell), empty});
    std::vector<std::vector<std::string>>& rows = tables.back().grid.rows;
    rows.push_back(verdict_row(findings[i], verbose));
    rows.back().resize(empty.columns.size());
  }
  return tables;
}

}  // namespace

bool is_pruned(const EntrantResult& finding) {
  return finding.entrant.role == kOfSpace && finding.status == Status::spills;
}
bool is_failed(const EntrantResult& finding) { return finding.status != Status::ok && !is_pruned(finding); }

std::string fault_of(const Verdicts& verdicts) {
  if (verdicts.whole()) return "";
  return verdicts.fault.empty() ? fmt::format("interrupted: {} verified", cells_done(verdicts.cells, verdicts.asked))
                                : verdicts.fault;
}

std::string again(const EntrantResult& finding, const DeviceOptions& device) {
  std::vector<std::string> argv = {"moetune", "verify"};
  std::ranges::move(device_arguments(device), std::back_inserter(argv));
  std::ranges::move(cell_arguments(finding.cell), std::back_inserter(argv));
  argv.insert(argv.end(), {"--candidate", text(finding.entrant.contender.candidate)});
  if (finding.repetition) argv.insert(argv.end(), {"--repeat-for", kRepeatFor});
  return shell_line(argv);
}

Json to_json(const EntrantResult& finding, const DeviceOptions& device) {
  Json json = {{"cell", to_json(finding.cell)},
               {"contender", to_json(finding.entrant.contender)},
               {"status", name(finding.status)}};
  if (finding.status != Status::ok) json["reason"] = finding.reason;
  if (finding.status == Status::ok || finding.verdict.elements > 0) json["verdict"] = to_json(finding.verdict);
  if (finding.repetition) json["repetition"] = to_json(*finding.repetition);
  if (is_failed(finding)) json["again"] = again(finding, device);
  return json;
}

std::string verdicts_csv(const std::vector<EntrantResult>& findings) {
  return csv_of(findings, [](const EntrantResult& finding) {
    const bool ran = finding.verdict.elements > 0;
    const auto& repetition = finding.repetition;
    Fields row;
    add_cell(row, finding.cell);
    add_candidate(row, &finding.entrant.contender.candidate);
    row.emplace_back("status", name(finding.status));
    row.emplace_back("reason", finding.reason);
    row.emplace_back("elements", ran ? std::to_string(finding.verdict.elements) : "");
    row.emplace_back("mismatches", ran ? std::to_string(finding.verdict.mismatches) : "");
    add_verdict(row, ran ? &finding.verdict : nullptr);
    row.emplace_back("repeated_launches", repetition ? std::to_string(repetition->launches) : "");
    row.emplace_back("different_launches", repetition ? std::to_string(repetition->different) : "");
    return row;
  });
}

std::string summary(const Verdicts& verdicts, const DeviceOptions& device, const Terminal& terminal, bool verbose) {
  const std::vector<EntrantResult> failed = failures(verdicts);
  const int columns = table_columns(Format::text, terminal, verbose);
  std::string text = headed_tables_text(
      tables_of(verdicts.findings.size() <= kFew ? verdicts.findings : failed, verbose), Format::text, columns);
  if (!verdicts.pruned.empty()) text += (text.empty() ? "" : "\n") + fitted(pruned_grid(verdicts.pruned), columns);
  for (const EntrantResult& finding : failed)
    text += bullets({reason_of(finding)}, Format::text, columns) + "Again: " + again(finding, device) + "\n";
  return text + (text.empty() ? "" : "\n") + paragraph(answer(verdicts, failed), columns);
}

std::string markdown(const Verdicts& verdicts, bool verbose) {
  return headed_tables_text(tables_of(verdicts.findings, verbose), Format::markdown, 0) +
         bullets(mapped(failures(verdicts), reason_of), Format::markdown, 0) + cut_short(fault_of(verdicts));
}

}  // namespace moetune
