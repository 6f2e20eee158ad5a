// Adding a run's cells to a table that is there.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "record/table/table.h"

namespace moetune {

/// The table that a run adds to: the cells of the run, and what the file held before it.
struct Whole {
  std::vector<Cell> asked;                // of this run, those of `before` too
  std::optional<TunedTable> before = {};  // what the table held
  std::vector<std::string> sweep = {};    // ids of the cells of all shards; empty where there is one
};

/// Takes the table of an earlier run as `before`, and returns the asked cells that it lacks, or holds without a winner
/// or unfinished. Throws Exit::machine where times of `now` don't compare with the table's: another device, other
/// kernels, another regime.
std::vector<Cell> lacking_cells(Whole& whole, TunedTable before, const Origin& now);

/// All that the file will hold: the entries of `before`, with those of `now` in place of entries of the same cells,
/// then the new ones; the choices of `before` whose entries are unchanged, with those of `now` in place of choices of
/// the same shape. The tool is that of `now`.
TunedTable whole_table(const Whole& whole, const TunedTable& now);

/// The asked cells, and those of `before` that have a shape of theirs.
std::vector<Cell> cells_to_choose_for(const Whole& whole);

/// The table with the entries of these cells alone, and the choices among them.
TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells);

}  // namespace moetune
