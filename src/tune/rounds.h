// Interleaved rounds: a block of each contender in each round, so that a drifting clock affects all of them alike.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/stats.h"
#include "tune/stopping.h"

namespace moetune {

/// What contenders are compared by: their time, or a metric that all their blocks have. Less is better.
struct Quantity {
  std::optional<Metric> metric = {};  // empty: time

  double of(const Block& block) const { return metric ? block.metrics.at(*metric) : block.seconds; }
  const Estimate& of(const Measurement& one) const { return metric ? one.metrics.at(*metric) : one.time; }
};
constexpr Quantity kTime;

/// A block of each contender in each round.
struct Rounds {
  std::vector<std::vector<Block>> blocks = {};  // [contender][round]
  std::vector<size_t> looks = {};               // rounds of each look: operands are made anew between looks

  size_t count() const { return blocks.empty() ? 0 : blocks[0].size(); }
  std::vector<double> values(size_t contender, const Quantity& quantity = kTime) const;
};

/// A fault together with the index of the contender that had it.
struct ContenderFault : CandidateFault {
  ContenderFault(size_t c, const CandidateFault& fault) : CandidateFault(fault.status, fault.what()), contender(c) {}
  size_t contender;
};
constexpr int kStrikes = 2;  // faults after which a contender is left out

/// How disturbances by other programs are detected and waited for. A round is disturbed where another program uses the
/// processors (kBusy in any of its blocks), or where the control, whose code can't have changed, takes kDisturbed times
/// its undisturbed time. On a virtual machine that shares its cores with others, only the second is visible.
struct Quiet {
  double wait = 0;                                                   // seconds left for measuring again
  std::optional<size_t> control = {};                                // the contender
  double control_seconds = std::numeric_limits<double>::infinity();  // a block's undisturbed time, as far as is known
  StopEarly early = {};                                              // ends waiting too
  std::vector<double> fastest = {};                                  // blocks of the control, ascending

  bool waits() const { return wait > 0 && !early.overdue(); }
};
constexpr double kDisturbed = 1.05;
constexpr double kUndisturbed = 1.03;  // the median of undisturbed blocks over their third fastest

/// A contender, and where it runs: two backends where two programs are compared.
struct Runner {
  Backend* backend = nullptr;
  Contender contender;
};

/// One look: `rounds` rounds of one block each over the operands that are loaded; the order changes from round to
/// round. Throws ContenderFault. A disturbed round is measured again while `quiet` has time left; after that it counts
/// too. The control's undisturbed time is estimated from its third fastest block, which is more robust than the
/// fastest. `quiet.early` may end it with fewer rounds.
Rounds measure_rounds(const std::vector<Runner>& runners, int rounds, const SampleRequest& request, Quiet& quiet);
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request, Quiet& quiet);

/// `rounds` without those in which the control was disturbed; all of them where too few would be left.
Rounds undisturbed(const Rounds& rounds, const Quiet& quiet);

/// Appends the rounds of `more`, which has the same contenders; `rounds` may be empty.
void append(Rounds& rounds, const Rounds& more);

/// Median and bootstrap interval of the round-by-round ratio a / b, by its logarithm. NaN for no rounds.
Estimate paired_ratio(const std::vector<double>& a, const std::vector<double>& b);

/// The same of contenders a and b. With five looks or more each look counts once, by its median: times differ more
/// between looks than between the rounds of one, because operands lie elsewhere in the caches, and the interval must
/// cover that.
Estimate paired_ratio(const Rounds& rounds, size_t a, size_t b, const Quantity& quantity = kTime);

/// Median and interval of a contender's own values, in the same way.
Estimate estimate_of(const Rounds& rounds, size_t contender, const Quantity& quantity = kTime);

/// Looks of a final or a check on a cpu, whose times differ from look to look.
constexpr int kCpuLooks = 8;

}  // namespace moetune
