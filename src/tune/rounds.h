// Interleaved rounds: contenders take turns, so that a drifting clock hits them all alike.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/stats.h"

namespace moetune {

/// seconds[contender][round]: the block time of each contender in each round.
struct Rounds {
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<Block>> blocks;  // the same, in full
};

/// `rounds` rounds of one block each; the order rotates from round to round. Throws CandidateFault of any contender.
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request);

/// Median and bootstrap interval of the round-by-round ratio a / b, by its logarithm.
struct Ratio {
  double median = 0;
  Interval interval;
};
Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence = 0.95);

}  // namespace moetune
