// What a strategy would have found on the device of a recorded journal: `moetune replay`. No kernel runs.
#pragma once
#include <string>
#include <vector>

#include "record/journal/journal.h"

namespace moetune {

struct RehearsalRequest {
  std::string strategy = "auto";
  int runs = 10;               // with the seeds 0, 1, ...
  int64_t max_candidates = 0;  // a cell; 0 = no limit
  bool warm_start = true;      // whether a cell begins with what won those before it
};

/// What the runs found in one cell. A loss is how much longer a candidate takes than the best of the journal, by their
/// recorded medians: 0.02 for 2 %.
struct RehearsedCell {
  Cell cell;
  int64_t recorded = 0;  // candidates in the journal that are right
  Candidate best;        // of these
  double best_seconds = 0;
  double default_loss = 0;          // infinite where the journal lacks the default
  std::vector<double> losses;       // one per run
  std::vector<int64_t> candidates;  // tried, one count per run
  std::vector<int64_t> blocks;      // measured, one count per run
};

/// Runs a strategy over the cells of a journal, in their order. The space of a cell is its candidates in the journal. A
/// block is drawn from those recorded of its candidate; where there are none, from a normal distribution as wide as the
/// recorded interval. As in a final, the fastest three and the default are compared again, here without noise. Cells
/// without a right candidate are left out; the default is tried where the journal has it, else the search begins with
/// the recorded candidate that is nearest to it.
std::vector<RehearsedCell> rehearse(const JournalContents& journal, const RehearsalRequest& request);

}  // namespace moetune
