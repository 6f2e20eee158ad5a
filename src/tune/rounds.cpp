// Taking turns, and the ratios that come of it.
#include "tune/rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace moetune {

Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request) {
  SampleRequest one = request;
  one.blocks = 1;
  const size_t count = contenders.size();
  Rounds result;
  result.seconds.resize(count);
  result.blocks.resize(count);
  for (int round = 0; round < rounds; ++round)
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t who = (static_cast<size_t>(round) + turn) % count;
      try {
        const std::vector<Block> blocks = backend.sample(contenders[who], one);
        if (blocks.empty()) throw Error(Exit::bug, "a sample of one block came back empty");
        result.blocks[who].push_back(blocks.front());
        result.seconds[who].push_back(blocks.front().seconds);
      } catch (const CandidateFault& fault) {
        throw ContenderFault(who, fault);
      }
    }
  return result;
}

void append(Rounds& rounds, const Rounds& more) {
  rounds.seconds.resize(more.seconds.size());
  rounds.blocks.resize(more.blocks.size());
  for (size_t i = 0; i < rounds.seconds.size(); ++i) {
    rounds.seconds[i].insert(rounds.seconds[i].end(), more.seconds[i].begin(), more.seconds[i].end());
    rounds.blocks[i].insert(rounds.blocks[i].end(), more.blocks[i].begin(), more.blocks[i].end());
  }
}

Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) logs.push_back(std::log(a[i] / b[i]));
  const Interval interval = bootstrap_median_interval(logs, confidence);
  const double middle = median(logs);
  // With few rounds the interval of resampled medians may miss the median itself by a rounding.
  return {std::exp(middle), {std::exp(std::min(interval.low, middle)), std::exp(std::max(interval.high, middle))}};
}

double log_half_width(const Interval& interval) {
  if (!(interval.low > 0 && interval.high >= interval.low)) return std::numeric_limits<double>::infinity();
  return std::log(interval.high / interval.low) / 2;
}

}  // namespace moetune
