// What `bench` measured, and the words for it. Runs nothing.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/contenders.h"
#include "cli/text/output.h"
#include "record/comparison.h"
#include "record/step.h"
#include "record/table/table.h"

namespace moetune {

Json to_json(const EntrantResult& result);

/// Whether the entrant has this role, maybe among others.
bool has_role(const Entrant& entrant, std::string_view role);

/// The times of each cell: a table's winners as "winners", the default as "default", the others by their names. Results
/// of a cell follow each other.
std::vector<CellTimes> cell_times(const std::vector<EntrantResult>& results);

/// A row a result; numbers are empty where it failed.
std::string bench_csv(const std::vector<EntrantResult>& results);

/// How many results failed.
int64_t failures(const std::vector<EntrantResult>& results);

/// The winners beside the baselines and other libraries of the same cells; nothing where fewer than two cells have
/// both.
std::vector<Comparison> comparisons(const std::vector<EntrantResult>& results);

/// For people: a table per cell, contenders in short, and the reasons of failures below. A verbose style adds all
/// knobs, roles, intervals and rates. Layers, what training steps take and how winners compare come last. Results of a
/// cell follow each other.
std::string bench_text(const std::vector<EntrantResult>& results, const Style& style, const TunedTable& layers = {});

}  // namespace moetune
