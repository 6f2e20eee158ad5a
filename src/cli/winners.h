// A tuned table as people read it after a run: winners, routing, and the answer in a sentence.
#pragma once
#include <string>
#include <vector>

#include "base/grid.h"
#include "table/table.h"

namespace moetune {

/// Cell, winner, time, against the default and each baseline, rates. A cell without a winner tells why.
Grid winners_grid(const TunedTable& table);

/// What each cell's routing came to, with the tile occupancy of its winner and, where the table has balanced rows too,
/// what it costs.
Grid routing_grid(const TunedTable& table);

/// "6 of 6 cells tuned. The winners run 1.35x as fast as the default and 1.10x as fast as cublas-loop (geometric
/// mean)."
std::string answer(const TunedTable& table, size_t cells);

}  // namespace moetune
