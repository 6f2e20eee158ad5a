// The final of a cell: the best of the screening, the default and the baselines in interleaved rounds.
#pragma once
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "record/table/table.h"
#include "tune/stopping.h"

namespace moetune {

constexpr size_t kFinalists = 3;   // of a cell, at most
constexpr int kFewestOfALook = 3;  // rounds, where a final has several looks

struct FinalRequest {
  int rounds = 11;  // to begin with; more while the winner's ratio is uncertain
  int looks = 1;    // parts of the rounds, each over operands that `reload` makes anew
  std::function<void()> reload = {};
  double reload_seconds = std::numeric_limits<double>::infinity();  // no look begins later than that
  double wait = 0;  // seconds to wait while other programs use the processors
  std::optional<StopWhenCertain> certain = StopWhenCertain{};  // of the winner's ratio to its first rival; empty: never
  StopEarly early = {};                                        // ends waiting and looks too
  SampleRequest sample;
  std::optional<Candidate> fallback;  // the default candidate
};

/// Decides a cell from its trials and fills the entry's winner, times, rivals and ties. The backend has loaded the
/// cell's problem. The finalists are the fastest trial and at most two more whose interval overlaps its interval. The
/// winner has the lowest median, and is never one that the default beats by the paired ratio; where the cell is too
/// noisy to trust it must beat the default surely. A baseline that can't run, or a finalist that fails twice, is left
/// out with a note. False where no trial is right or none survives.
bool decide(Entry& entry, const std::deque<Trial>& trials, Backend& backend, const Shape& shape,
            const FinalRequest& request, const std::function<void(const std::string&)>& note);

}  // namespace moetune
