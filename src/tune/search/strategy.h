// Which candidate to try next, and for how long. A strategy needs no device, so that it can be rehearsed on a recorded
// journal.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/measurement.h"
#include "tune/search/warm_start.h"
#include "variant/space/domain.h"
#include "workload/problem.h"

namespace moetune {

/// What a strategy asks for: to measure some blocks of a candidate, which is verified before the first.
struct Ask {
  Candidate candidate;
  int blocks = 1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next question. Nothing while the next one depends on answers that are missing; and nothing at the end, when
  /// none is missing.
  virtual std::optional<Ask> ask() = 0;
  /// What is known of a candidate now, with all of its blocks. Trials of a resumed run are told without ask().
  virtual void tell(const Trial& trial) = 0;
  /// Candidates that it may ask for next, the likeliest first: they can be compiled ahead. At most `count`.
  virtual std::vector<Candidate> likely(size_t count) const = 0;
  /// The most candidates that it asks for.
  virtual int64_t most_candidates() const = 0;
  /// How many it asks for in most cells.
  virtual int64_t usual_candidates() const { return most_candidates(); }
};

/// What a strategy may know of the cell that it searches.
struct SearchSetting {
  const Problem& problem;
  const DeviceInfo& device;
  Candidate fallback;                         // the default
  std::shared_ptr<const Enumeration> listed;  // of exhaustive and random; null otherwise
  std::shared_ptr<const Domain> domain;       // of auto and model; null otherwise
  WarmStart warm = {};                        // what won other cells; it may be illegal here
  int blocks = 5;                             // of a candidate, where the strategy doesn't race them
  uint64_t seed = 0;
};

/// "auto" is described in tune/search/auto.h. "exhaustive" goes through all candidates in order, "random" in a random
/// order of `seed`, "model" through the 32 that should be the fastest by the variants' models. All but the last ask for
/// the default first. No strategy asks again for a candidate that it was told, except for more blocks of it.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const SearchSetting& setting);
struct StrategyText {
  std::string name, description;
};
const std::vector<StrategyText>& strategies();  // in the order in which they are listed
std::vector<std::string> strategy_names();
/// Exit::request, with the nearest name.
void require_strategy(const std::string& name);

/// Whether a strategy goes through a list of candidates, which is made first.
bool lists_candidates(const std::string& strategy);

}  // namespace moetune
