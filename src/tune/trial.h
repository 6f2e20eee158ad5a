// One trial: a candidate is verified and timed in a loaded cell.
#pragma once
#include <optional>

#include "backend/backend.h"
#include "record/measurement.h"

namespace moetune {

/// Verifies and times a candidate that has been compiled; `compile` is its result. Never throws CandidateFault.
/// Where `best` is known and the first two blocks are both more than 1.5 times as long, they are all that is measured:
/// the candidate can't win, and its `samples` show that. (Two, because a single block may have been disturbed.)
Trial try_compiled(Backend& backend, const Candidate& candidate, const CompileResult& compile,
                   const SampleRequest& request, std::optional<double> best);

/// The trial with the blocks of `request` added; the rest of it stays, unless it fails now.
Trial measure_more(Backend& backend, Trial trial, const SampleRequest& request);

}  // namespace moetune
