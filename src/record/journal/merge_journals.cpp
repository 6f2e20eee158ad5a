// Journals are read twice: once to check them, once for their lines, which are copied as they are.
#include "record/journal/journal.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "record/table/table.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

struct Records {
  std::vector<std::pair<std::string, std::string>> lines;  // cell id, line
  std::map<std::string, std::string> by_cell;
};

Records read_records(const fs::path& path) {
  Records records;
  each_line(path, [&](const JsonAt& json, const std::string& line) {
    if (json.has("cells")) return;  // the header
    const std::string cell = json.value().value("cell", "");
    records.by_cell[cell] += line + "\n";
    records.lines.emplace_back(cell, line);
  });
  return records;
}

void require_same_request(const JournalHeader& a, const JournalHeader& b, const fs::path& path) {
  const auto require = [&](std::string_view what, const auto& first, const auto& second) {
    if (first != second)
      throw request_error(
          fmt::format("{}: the {} is {}, that of the first journal {}", path.string(), what, second, first),
          "merge only journals of one run");
  };
  require("space", a.space, b.space);
  require("strategy", a.strategy, b.strategy);
  require("seed", a.seed, b.seed);
}

JournalHeader merged_header(const std::vector<JournalHeader>& headers) {
  std::map<std::string, Cell> cells;
  std::vector<std::vector<std::string>> sweeps;
  for (const JournalHeader& header : headers) {
    sweeps.insert(sweeps.end(), {header.sweep, mapped(header.cells, id)});
    for (const Cell& cell : header.cells) cells.emplace(id(cell), cell);
  }
  JournalHeader merged = headers.at(0);
  merged.cells.clear();
  merged.sweep = merged_sweep(sweeps);
  for (const std::string& cell : merged.sweep)
    if (const auto found = cells.find(cell); found != cells.end()) merged.cells.push_back(found->second);
  if (merged.cells.size() == merged.sweep.size()) merged.sweep.clear();
  return merged;
}

}  // namespace

MergedJournal merge_journals(const std::vector<fs::path>& paths, const std::string& prefer, const Catalog& catalog) {
  if (paths.empty()) throw request_error("nothing to merge", "name two journals or more");
  std::vector<JournalHeader> headers;
  std::vector<Records> journals;
  std::map<std::string, size_t> owners;  // cell id -> the journal whose records are taken
  MergedJournal merged;
  for (size_t i = 0; i < paths.size(); ++i) {
    headers.push_back(read_journal(paths[i], catalog).header);
    require_mergeable("journals", {headers[0].device, headers[0].environment, headers[0].regime},
                      {headers[i].device, headers[i].environment, headers[i].regime});
    require_same_request(headers[0], headers[i], paths[i]);
    journals.push_back(read_records(paths[i]));
    for (const auto& [cell, lines] : journals[i].by_cell) {
      const auto [owner, fresh] = owners.emplace(cell, i);
      if (fresh || journals[owner->second].by_cell.at(cell) == lines) continue;
      add_once(merged.conflicts, cell);
      if (prefer == "last") owner->second = i;
    }
  }
  merged.header = merged_header(headers);
  merged.text = compact_json(to_json(merged.header)) + "\n";
  for (size_t i = 0; i < journals.size(); ++i)
    for (const auto& [cell, line] : journals[i].lines)
      if (owners.at(cell) == i) merged.text += line + "\n";
  return merged;
}

}  // namespace moetune
