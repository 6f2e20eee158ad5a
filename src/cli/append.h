// `tune --append`: what a table holds already, and one table from that and what is tuned now.
#pragma once
#include <string>
#include <vector>

#include "backend/backend.h"
#include "table/table.h"

namespace moetune {

/// Throws Exit::machine where what is tuned on this backend doesn't compare with the table in `file`: another device,
/// other kernels.
void require_appendable(const TunedTable& table, Backend& backend, const std::string& file);

/// Those of `cells` that the table lacks, or holds without a winner or unfinished; in their order.
std::vector<Cell> cells_to_tune(const TunedTable& table, const std::vector<Cell>& cells);

/// The table with the entries of `now` in place of its own of the same cells, and its new ones at the end. The tool is
/// that of `now`.
TunedTable appended(const TunedTable& table, const TunedTable& now);

/// The table with the entries of these cells alone.
TunedTable entries_of(const TunedTable& table, const std::vector<Cell>& cells);

}  // namespace moetune
