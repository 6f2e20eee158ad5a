// Which candidate to try next. Asks nothing of devices, so that recorded journals can replay it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "variant/candidate.h"

namespace moetune {

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next candidate, each at most once; nothing when the strategy is done.
  virtual std::optional<Candidate> ask() = 0;
  /// The outcome of a candidate: its seconds, or nothing where it failed. Trials of a resumed run are told without
  /// ask().
  virtual void tell(const Candidate& candidate, std::optional<double> seconds) = 0;
};

/// "exhaustive" goes through all in order, "random" in a random order of `seed`. Both skip what was told already.
std::unique_ptr<Strategy> make_strategy(const std::string& name, std::vector<Candidate> legal, uint64_t seed);
std::vector<std::string> strategy_names();

}  // namespace moetune
