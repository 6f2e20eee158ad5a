// Tables joined by the rules of `merge`.
#include "cli/options/append.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "record/table/mergeable.h"

namespace moetune {
std::vector<Cell> append_to(Whole& whole, const std::string& file, const Catalog& catalog, Backend& backend,
                            Regime regime, const std::function<void(const std::string&)>& say) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    say(fmt::format("{} does not exist: --append begins a new table", file));
    return whole.asked;
  }
  whole.before = read_table(file, catalog);
  try {
    require_mergeable("tables", {whole.before->device, whole.before->environment, whole.before->regime},
                      {backend.device(), backend.environment(), regime});
  } catch (const Error& error) {
    throw Error(error.exit(), fmt::format("--append: no cell can join {}: {}", file, error.what()),
                "name another table with -o, or tune all cells again without --append");
  }
  std::set<std::string> known;
  for (const Entry& entry : whole.before->entries)
    if (entry.complete && entry.skipped.empty()) known.insert(id(entry.cell));
  std::vector<Cell> lacking = whole.asked;
  std::erase_if(lacking, [&](const Cell& cell) { return known.contains(id(cell)); });
  const size_t cells = whole.asked.size(), kept = cells - lacking.size();
  if (lacking.empty())
    say(fmt::format("{} holds all these cells already: nothing is tuned", file));
  else if (kept > 0)
    say(fmt::format("{} holds {} of {} cells already: --append tunes the others", file, kept, cells));
  return lacking;
}

TunedTable whole_table(const Whole& whole, const TunedTable& now) {
  TunedTable table = now;
  table.sweep = whole.sweep;
  if (!whole.before) return table;
  table.choices.clear();  // their cells may be in `before` alone
  TunedTable joined = merge({*whole.before, table}, "last").table;
  joined.tool = now.tool;
  for (const RobustChoice& choice : now.choices) drop_choices(joined, choice.shape());
  joined.choices.insert(joined.choices.end(), now.choices.begin(), now.choices.end());
  return joined;
}

std::vector<Cell> cells_to_choose_for(const Whole& whole) {
  std::vector<Cell> cells = whole.asked;
  if (!whole.before) return cells;
  for (const Entry& entry : whole.before->entries)
    if (std::ranges::find(whole.asked, entry.cell) == whole.asked.end() &&
        std::ranges::any_of(whole.asked, [&](const Cell& cell) { return cell.shape == entry.cell.shape; }))
      cells.push_back(entry.cell);
  return cells;
}

std::vector<std::string> lost_choices(const Whole& whole, const TunedTable& now) {
  if (!whole.before) return {};
  return merge({*whole.before, now}, "last").dropped_choices;
}

TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells) {
  std::set<std::string> wanted;
  for (const Cell& cell : cells) wanted.insert(id(cell));
  TunedTable part = table;
  std::erase_if(part.entries, [&](const Entry& entry) { return !wanted.contains(id(entry.cell)); });
  std::vector<Shape> cut;  // whose choices lack cells now
  for (const RobustChoice& choice : part.choices)
    if (std::ranges::any_of(choice.cells, [&](const Cell& cell) { return !wanted.contains(id(cell)); }))
      cut.push_back(choice.shape());
  for (const Shape& shape : cut) drop_choices(part, shape);
  return part;
}

}  // namespace moetune
