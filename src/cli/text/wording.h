// Numbers and findings as the commands word them, so that every table reads alike.
#pragma once
#include <map>
#include <string>

#include "base/text/grid.h"
#include "record/table/table.h"
#include "record/time_text.h"

namespace moetune {

/// "3.87 TB/s", "550 GFLOP/s".
std::string rate_text(double per_second, const std::string& unit);

/// "3 cells", "2 of 3 cells": how many of those asked for are done.
std::string cells_done(size_t done, size_t asked);

/// The realised routing: rows, active experts, max/mean, CV, effective experts (columns to append to a grid).
std::vector<Column> figures_columns();
std::vector<std::string> figures_row(const RoutingFigures& figures, int64_t experts);

/// Why candidates were pruned, the most frequent reason first.
Grid pruned_grid(const std::map<std::string, int64_t>& reasons);

/// The argument as a shell takes it, quoted where needed.
std::string shell_quoted(const std::string& word);
std::string shell_line(const std::vector<std::string>& argv);

}  // namespace moetune
