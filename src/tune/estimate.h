// How long a tuning run will take, told before it begins. Measures nothing.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "backend/backend.h"
#include "table/journal.h"

namespace moetune {

/// Seconds of a trial and of a final by cell id, as a journal tells them, and how its sums compare with those that
/// figures of the kind of device give for the same cells. 0 = not told.
struct Pace {
  std::map<std::string, double> trial, final;
  double trial_scale = 0, final_scale = 0;
};
Pace pace_of(const Replay& journal);

/// What is to be tuned of a cell.
struct CellWorkload {
  std::string id;
  int64_t trials = 0;
  double flops = 0;  // of the problem
};

/// Seconds that a cell takes on one device: by the journal's figures of this cell, else by figures of the kind of
/// device, scaled as the journal's other cells tell. `guessed` (may be null) becomes true where the journal tells of no
/// trial.
double estimated_seconds(const CellWorkload& cell, const Pace& pace, const DeviceInfo& device, Regime regime,
                         bool* guessed);

}  // namespace moetune
