// Tables joined by the rules of `merge`.
#include "cli/append.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace moetune {

void require_appendable(const TunedTable& table, Backend& backend, const std::string& file) {
  TunedTable now;
  now.device = backend.device();
  now.environment = backend.environment();
  now.regime = table.regime;
  try {
    merge({table, now}, "");
  } catch (const Error& error) {
    throw Error(error.exit(), fmt::format("--append: {} was tuned elsewhere: {}", file, error.what()),
                "name another table with -o, or tune all cells again without --append");
  }
}

std::vector<Cell> cells_to_tune(const TunedTable& table, const std::vector<Cell>& cells) {
  std::set<std::string> known;
  for (const Entry& entry : table.entries)
    if (entry.complete && entry.skipped.empty()) known.insert(id(entry.cell));
  std::vector<Cell> result;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(result),
               [&](const Cell& cell) { return !known.contains(id(cell)); });
  return result;
}

TunedTable appended(const TunedTable& table, const TunedTable& now) {
  TunedTable joined = merge({table, now}, "last").table;
  joined.tool = now.tool;
  return joined;
}

TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells) {
  std::set<std::string> wanted;
  for (const Cell& cell : cells) wanted.insert(id(cell));
  TunedTable part = table;
  std::erase_if(part.entries, [&](const Entry& entry) { return !wanted.contains(id(entry.cell)); });
  return part;
}

}  // namespace moetune
