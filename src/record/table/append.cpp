// Which cells a table lacks, and the table with those of a run, by the rules of merge.
#include "record/table/append.h"

#include <algorithm>
#include <set>

#include "base/group.h"

namespace moetune {

std::vector<Cell> lacking_cells(Whole& whole, TunedTable before, const Origin& now) {
  require_mergeable("tables", {before.device, before.environment, before.regime}, now);
  whole.before = std::move(before);
  std::set<std::string> known;
  for (const Entry& entry : whole.before->entries)
    if (entry.complete && entry.skipped.empty()) known.insert(id(entry.cell));
  return filtered(whole.asked, [&](const Cell& cell) { return !known.contains(id(cell)); });
}

TunedTable whole_table(const Whole& whole, const TunedTable& now) {
  TunedTable table = now;
  table.sweep = whole.sweep;
  if (!whole.before) return table;
  table.choices.clear();  // their cells may be in `before` alone
  TunedTable combined = merge({*whole.before, table}, "last").table;
  combined.tool = now.tool;
  for (const RobustChoice& choice : now.choices) drop_choices(combined, choice.shape());
  combined.choices.insert(combined.choices.end(), now.choices.begin(), now.choices.end());
  return combined;
}

std::vector<Cell> cells_to_choose_for(const Whole& whole) {
  std::vector<Cell> cells = whole.asked;
  if (!whole.before) return cells;
  for (const Entry& entry : whole.before->entries)
    if (!contains(whole.asked, entry.cell) &&
        std::ranges::any_of(whole.asked, [&](const Cell& cell) { return cell.shape == entry.cell.shape; }))
      cells.push_back(entry.cell);
  return cells;
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
