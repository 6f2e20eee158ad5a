// The table that a run's cells belong to: its own, that of a shard, or one that --append adds to.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "record/table/table.h"

namespace moetune {

struct Whole {
  std::vector<Cell> asked;                // of this run, those of `before` too
  std::optional<TunedTable> before = {};  // what the table held
  std::vector<std::string> sweep = {};    // ids of the cells of all shards; empty where there is one
};

/// Reads the table in `file`, where there is one, and returns the cells that it lacks, or holds without a winner or
/// unfinished. `say` gets a sentence for people. Throws Exit::machine where times of this backend in this regime
/// don't compare with the table's: another device, other kernels, another regime.
std::vector<Cell> append_to(Whole& whole, const std::string& file, const Catalog& catalog, Backend& backend,
                            Regime regime, const std::function<void(const std::string&)>& say);

/// All that the file will hold: the entries of `before`, with those of `now` in place of entries of the same cells,
/// then the new ones; the choices of `before` whose entries are unchanged, with those of `now` in place of choices of
/// the same shape. The tool is that of `now`.
TunedTable whole_table(const Whole& whole, const TunedTable& now);

/// The asked cells, and those of `before` that have a shape of theirs.
std::vector<Cell> cells_to_choose_for(const Whole& whole);

/// Titles of the layers whose choices `before` had and whole_table drops.
std::vector<std::string> lost_choices(const Whole& whole, const TunedTable& now);

/// The table with the entries of these cells alone, and the choices among them.
TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells);

}  // namespace moetune
