// --shard i/n, the part of a sweep that one of several machines tunes (they share no state: each makes the same
// choice), and --append: the table that a run's cells belong to.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "record/table/table.h"

namespace moetune {

/// Shard `index` of `count`, counted from 1.
struct Shard {
  int64_t index = 1, count = 1;
  std::string source = {};  // the variables that it comes from; empty where the option or nothing gave it
  bool operator==(const Shard&) const = default;
};

/// A variable of the environment; null where it is not set.
using Variables = std::function<const char*(const char* name)>;

/// `option` where it is given ("2/4"). Else the rank among the tasks of MPI (Open MPI, PMI, PMIx) or of a Slurm step
/// with several tasks; in a Slurm job array, the tasks of all its jobs are counted through. One task alone is shard
/// 1/1. Exit::request errors name the option or the variable.
Shard choose_shard(const std::string& option, const Variables& variable);

/// The cells of a shard, in their order. By decreasing work (rows times n times k) the cells are dealt to shards 1 to
/// n, then n to 1, and so on: the numbers of cells differ by one at most, and each shard gets large and small ones.
/// Every cell is in one shard; the choice depends on nothing but the list.
std::vector<Cell> cells_of(const Shard& shard, const std::vector<Cell>& cells);

/// "table.json" to "table.2-of-4.json"; a device or a pipe keeps its name.
std::filesystem::path shard_file(const Shard& shard, const std::filesystem::path& path);

/// "2/4", as --shard takes it.
std::string text(const Shard& shard);

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

/// The table with the entries of these cells alone, and the choices among them.
TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells);

}  // namespace moetune
