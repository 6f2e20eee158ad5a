// Interleaved rounds: contenders take turns, so that a drifting clock hits them all alike.
#pragma once
#include <atomic>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/stats.h"
#include "table/measurement.h"

namespace moetune {

/// seconds[contender][round]: the block time of each contender in each round.
struct Rounds {
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<Block>> blocks;  // the same, in full
  std::vector<size_t> looks;               // how many rounds each look has: operands lie elsewhere in the next
};

/// A contender's fault that says which of them it was.
struct ContenderFault : CandidateFault {
  ContenderFault(size_t c, const CandidateFault& fault) : CandidateFault(fault.status, fault.what()), contender(c) {}
  size_t contender;
};

/// What tells that others disturb what is measured: in a round they keep the processors busy (kBusy in any of its
/// blocks), or a contender that can't have changed takes kDisturbed times what it takes in peace. A virtual machine
/// sees nothing but the latter of those who share its cores, and they slow programs down unequally.
struct Quiet {
  double wait = 0;                                                   // seconds for measuring again, which uses them up
  std::optional<size_t> control = {};                                // the contender
  double control_seconds = std::numeric_limits<double>::infinity();  // what it takes in peace, as far as is known
  const std::atomic<bool>* stop = nullptr;                           // once it is set nothing is waited for
  std::vector<double> fastest = {};                                  // of the control's blocks, ascending

  bool waits() const { return wait > 0 && !(stop && *stop); }
};
constexpr double kDisturbed = 1.05;
constexpr double kInPeace = 1.03;  // the median of blocks in peace over their least (Xeon, 2 threads)

/// One look: `rounds` rounds of one block each; the order changes from round to round. Throws ContenderFault. What is
/// disturbed is measured again while `quiet` has time left; after that it counts as it is. What the control takes in
/// peace is learnt from its third fastest block: a single one may be luck that doesn't come again.
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request, Quiet& quiet);
Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request);

/// `rounds` without those that were disturbed by their control; all where hardly any would be left.
Rounds undisturbed(const Rounds& rounds, const Quiet& quiet);

/// Appends the rounds of `more`, which has the same contenders; to none at all, too.
void append(Rounds& rounds, const Rounds& more);

/// Median and bootstrap interval of the round-by-round ratio a / b, by its logarithm. NaN for no rounds.
struct Ratio {
  double median = 0;
  Interval interval;
};
Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence = 0.95);

/// The same of contenders a and b. Where there are looks enough (5) each counts once, by its median: between looks
/// times differ by more than between the rounds of one, since caches and neighbours are other ones, and the interval
/// must hold that too.
Ratio paired_ratio(const Rounds& rounds, size_t a, size_t b);

/// Median and interval of a contender's own seconds, in the same way.
Ratio time_of(const Rounds& rounds, size_t contender);

/// Looks at a cpu that tell more than they cost: from one to the next its times differ by about 3 %.
constexpr int kCpuLooks = 8;

}  // namespace moetune
