// Findings as tables.
#include "cli/tables/findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/units.h"
#include "cli/text/sections.h"

namespace moetune {
namespace {

std::string winner_of(const TunedTable& table, const Cell& cell) {
  const auto entry = std::ranges::find_if(table.entries, [&](const Entry& one) { return one.cell == cell; });
  return entry == table.entries.end() ? "" : text(entry->candidate);
}

std::vector<std::string> row_of(const CellFinding& finding, const CheckResult& result, const TunedTable& table,
                                bool verbose) {
  const bool by_time = is_told_by_time(finding);
  std::vector<std::string> row = cell_row(finding.cell);
  row.push_back(finding.before_seconds > 0 ? format_time(finding.before_seconds) : "");
  row.push_back(finding.rounds > 0 ? format_time(finding.now.time.value) : "");
  row.push_back(change_text(finding));
  row.push_back(detectable_text(finding));
  if (verbose) row.push_back(judged_by(finding, result));
  row.push_back(fmt::format("{}{}", name(finding.finding), by_time ? ", by time" : ""));
  if (verbose) row.push_back(winner_of(table, finding.cell));
  return row;
}

// "Changes are those of the ratio to loop, measured in the same rounds."
std::string legend(const CheckResult& result) {
  const std::vector<CellFinding>& findings = result.findings;
  if (std::ranges::all_of(findings, [](const CellFinding& finding) { return finding.rounds == 0; })) return "";
  const std::string found = " A slowdown of the size under 'finds' would have been found with a chance of 95 %.";
  if (!result.against.empty())
    return fmt::format("Before is the time with {}, measured in the same rounds.", result.against) + found;
  std::vector<std::string> controls;
  for (const CellFinding& finding : findings)
    if (finding.rounds > 0 && !is_told_by_time(finding) &&
        std::ranges::find(controls, finding.control) == controls.end())
      controls.push_back(finding.control);
  if (controls.empty()) return found.substr(1);
  return fmt::format("Changes are those of the ratio to {}, measured in the same rounds.",
                     fmt::join(controls, " or ")) +
         found;
}

}  // namespace

std::string findings_text(const CheckResult& result, const TunedTable& table, const Terminal& terminal, bool verbose) {
  const std::vector<CellFinding>& findings = result.findings;
  std::vector<Cell> cells;
  for (const CellFinding& finding : findings) cells.push_back(finding.cell);
  std::vector<Section> sections;
  for (const std::vector<size_t>& layer : by_layer(cells)) {
    Grid grid{cell_columns(), {}};
    grid.columns.insert(grid.columns.end(), {{"before", true}, {"now", true}, {"change", true}, {"finds", true}});
    if (verbose) grid.columns.push_back({"by"});
    grid.columns.push_back({"verdict"});
    if (verbose) grid.columns.push_back({"winner"});
    for (const size_t i : layer) grid.rows.push_back(row_of(findings[i], result, table, verbose));
    sections.push_back({{title(cells[layer[0]].shape)}, std::move(grid)});
  }
  const int columns = table_columns(Format::text, terminal, verbose);
  std::string out = sections_text(sections, Format::text, columns) + bullets(reasons(result), Format::text, columns);
  if (!out.empty()) out += "\n";
  if (const std::string words = legend(result); !words.empty()) out += paragraph(words, columns);
  if (const std::string words = mean_text(result); !words.empty()) out += paragraph(words, columns);
  return out + paragraph(sentence(result), columns) + cut_short(result.fault, one_line);
}

}  // namespace moetune
