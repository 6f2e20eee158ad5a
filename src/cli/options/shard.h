// --shard i/n: the part of a sweep that one of several machines tunes. They share no state: each makes the same choice.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "workload/problem.h"

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

}  // namespace moetune
