// Interleaved rounds: contenders take turns, so that a drifting clock affects all of them alike.
#pragma once
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/stats.h"
#include "record/measurement.h"

namespace moetune {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
/// When a budget of so many seconds that begins now ends: never for 0.
inline Clock::time_point end_of_budget(double seconds) {
  const std::chrono::duration<double> budget(seconds);
  return seconds > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(budget) : Clock::time_point::max();
}

/// seconds[contender][round]: the block time of each contender in each round.
struct Rounds {
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<Block>> blocks;  // the same, in full
  std::vector<size_t> looks;               // rounds of each look: operands are made anew between looks
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
  const std::atomic<bool>* stop = nullptr;                           // once it is set, waiting ends
  std::vector<double> fastest = {};                                  // blocks of the control, ascending

  bool waits() const { return wait > 0 && !(stop && *stop); }
};
constexpr double kDisturbed = 1.05;
constexpr double kInPeace = 1.03;  // the median of undisturbed blocks over their third fastest

/// A contender, and where it runs: several backends take turns where two programs are compared.
struct Runner {
  Backend* backend = nullptr;
  Contender contender;
};

/// One look: `rounds` rounds of one block each over the operands that are loaded; the order changes from round to
/// round. Throws ContenderFault. A disturbed round is measured again while `quiet` has time left; after that it counts
/// too. The control's undisturbed time is estimated from its third fastest block, which is more robust than the
/// fastest.
Rounds measure_rounds(const std::vector<Runner>& runners, int rounds, const SampleRequest& request, Quiet& quiet);
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request, Quiet& quiet);
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request);

/// `rounds` without those in which the control was disturbed; all of them where too few would be left.
Rounds undisturbed(const Rounds& rounds, const Quiet& quiet);

/// Appends the rounds of `more`, which has the same contenders; `rounds` may be empty.
void append(Rounds& rounds, const Rounds& more);

/// Median and bootstrap interval of the round-by-round ratio a / b, by its logarithm. NaN for no rounds.
Estimate paired_ratio(const std::vector<double>& a, const std::vector<double>& b);

/// The same of contenders a and b. With five looks or more each look counts once, by its median: times differ more
/// between looks than between the rounds of one, because operands lie elsewhere in the caches, and the interval must
/// cover that.
Estimate paired_ratio(const Rounds& rounds, size_t a, size_t b);

/// Median and interval of a contender's own seconds, in the same way.
Estimate time_of(const Rounds& rounds, size_t contender);

/// Looks of a final or a check on a cpu, whose times differ from look to look.
constexpr int kCpuLooks = 8;

}  // namespace moetune
