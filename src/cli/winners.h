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

/// "3 of 12 cells are too noisy to trust: CELL (its time is uncertain by 31 %), ...; tune them again, with --wait for a
/// quiet machine." Empty where every winner can be trusted.
std::string noise_sentence(const TunedTable& table);

/// "6 of 6 cells tuned: the winners are 1.35x as fast as the default and 1.10x as fast as cublas-loop (geometric
/// means)." Ratios that are too uncertain to claim are left out, and the noise sentence follows.
std::string answer(const TunedTable& table, size_t cells);

}  // namespace moetune
