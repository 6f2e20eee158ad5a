// Is a cell slower than a table says, or than with another program? Measures all winners again, then once more those
// that seem slower.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "check/finding.h"
#include "check/lineup.h"

namespace moetune {

struct CheckRequest {
  double threshold = 0.05;  // smallest change that counts
  int rounds = 15;          // to begin with
  int max_rounds = 60;      // while inconclusive
  int looks = 1;            // parts of the rounds, each over operands made anew
  double wait = 0;          // seconds a cell may wait while other programs use the processors
  double patience = 0;      // seconds that a slowdown must last; it is measured at least twice
  double time_budget = 0;   // seconds; 0 = none
  SampleRequest sample;
  std::optional<Against> against = {};  // compare with it, and not with the table's times
  bool all_rivals = false;              // measure every rival of the table
};

/// Throws Exit::machine, with both names, where the table is of another device: its ratios say nothing about this one.
void require_comparable(const TunedTable& table, const DeviceInfo& device);

/// Verifies each entry's winner, measures it beside its default, the first baseline of the table and its fastest in
/// interleaved rounds, and judges change = (winner / control now) / (winner / control in the table) - 1. The control is
/// the fastest baseline, or the default where the table has none: a loop over many small experts waits for its
/// launches, whose cost differs from load to load. The uncertainties of both ratios count, as independent ones. The
/// change of the time itself is judged too, because a noisy control hides a slowdown: it shows a regression where the
/// ratio is too uncertain and the winner's time grew by more than the control's.
/// With `against` nothing of the table but its winners is used: the same winner is measured here and there in the same
/// rounds, and change = here / there - 1. Both sides keep their operands at the same time.
///   equivalent    the interval lies below the threshold (clearly, by SmallestEffect, if a set ends early), or at the
///                 end of all rounds the median does; it is no wider than the threshold to each side, or doesn't pass
///                 minus the threshold either
///   improved      it lies below the threshold, the median is below minus the threshold and the interval below 0, and
///                 it is a discovery among all cells; else it is equivalent, or with a wide interval inconclusive
///   regressed     an increase by SmallestEffect, of the ratio or the time; it is a discovery among all cells at a
///   false
///                 discovery rate of 5 %; and further sets of rounds, over operands made anew after all cells were
///                 measured, confirm it until `patience` has passed, while none of them lies below the threshold
///   inconclusive  after all rounds the noise is larger than the threshold; there is nothing to compare with; or `stop`
///                 left too few rounds
///   untrusted     a regression or improvement, but the machine may be what changed: the control, which can't have
///                 changed, moved beyond ControlLimits; or other programs used the processors, then or now (kBusy),
///                 unless the baseline of both programs shows that they slowed both alike. Or nothing shows, but the
///                 control moved so far that this says nothing
///   wrong_result, failed  the winner's result is wrong, or it doesn't run any more
/// Where the geometric mean alone shows a regression, fresh rounds of every cell must show it again.
/// Entries without a winner are skipped. `listen` gets each finding when it is final, those to confirm last. Entries
/// whose cell can't be made (a missing trace) throw; `listen` has got the findings before them, unconfirmed ones as
/// inconclusive.
CheckResult check(const TunedTable& table, Backend& backend, const CheckRequest& request,
                  const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop);

}  // namespace moetune
