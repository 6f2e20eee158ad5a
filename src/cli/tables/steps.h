// What training steps take, as tables under headings. Which cells make a step: see table/step.h.
#pragma once
#include <vector>

#include "cli/text/headed_tables.h"
#include "record/step.h"

namespace moetune {

/// One table per layer with training steps. Each step has a row per contender with the sum of its six times, and how
/// much faster the first contender is: the ratio of the sums, or "noisy" where a cell cannot be trusted.
std::vector<HeadedTable> step_tables(const std::vector<CellTimes>& cells);

}  // namespace moetune
