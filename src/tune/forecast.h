// How long a tuning run will take, estimated before it begins. Measures nothing.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "record/journal/journal.h"
#include "tune/tuner.h"

namespace moetune {

/// Seconds of a trial and of a final by cell id, from a journal. A scale is the journal's sum over the sum of guesses
/// for the same cells; 0 = unknown. Where cells took turns, each has its part of the time that passed.
struct Pace {
  std::map<std::string, double> trial, final;
  double trial_scale = 0, final_scale = 0;
};
Pace pace_of(const JournalContents& journal);

/// What remains to be tuned of a cell.
struct CellWorkload {
  std::string id;
  int64_t trials = 0;
  double flops = 0;  // of the problem
};

/// Seconds that a cell takes on one device: by the journal's trials of this cell, else by a guess from the kind of
/// device, scaled by the journal's other cells. `guessed` (may be null) becomes true where the journal has no trial.
double forecast_seconds(const CellWorkload& cell, const Pace& pace, const DeviceInfo& device, Regime regime,
                        bool* guessed);

/// Of one device.
struct CellForecast {
  int64_t trials = 0;  // candidates left to try; a search may end before or after so many
  double seconds = 0;
};
struct RunForecast {
  std::vector<CellForecast> cells;  // those of the request
  int64_t trials = 0;
  double seconds = 0;    // of the run, within its time budget; devices share the cells
  bool guessed = false;  // no journal has such trials
};

/// What a run takes. `listed` has the candidates of each cell, null where the strategy needs no list. `journal` counts
/// where it is of this model of device and of the request's regime; with `resume` its candidates are not tried again.
RunForecast forecast_run(const TuneRequest& request, const DeviceInfo& device,
                         const std::vector<std::shared_ptr<const Enumeration>>& listed, const JournalContents& journal,
                         size_t devices, bool resume);

}  // namespace moetune
