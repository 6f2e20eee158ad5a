// What the rounds of one cell show, by the rules of judge.h: how the winner changed, whether that is significant, what
// speaks against it, and the words for it. Measures nothing.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check/judge.h"
#include "record/table/table.h"
#include "tune/rounds.h"

namespace moetune {

/// One comparison: an entry's winner and those that it is measured beside. Against a table these are the entry's
/// rivals, with the times that the table has. Against another program they are a baseline here, the same one there (the
/// witness), and last the same winner there, whose ratio should be 1.
struct Lineup {
  const Entry* entry = nullptr;
  std::vector<Runner> runners;     // the winner first, then the rivals
  std::vector<Rival> rivals = {};  // the control, whose ratio is judged, is the last
  bool paired = false;             // with another program

  const Rival& control() const { return rivals.back(); }
  /// Whether the baseline that both programs run takes part: runners 1 and 2.
  bool has_witness() const { return paired && rivals.size() == 3; }
};

/// The winner, its default, the first baseline of the table and its control; or, where `all`, every rival of the table.
/// Baselines only where the backend offers them. Nothing where no control is left.
std::optional<Lineup> line_up(const Entry& entry, Backend& backend, bool all);

/// The winner here and there, and a baseline that both offer, of the table if it has one.
Lineup line_up_pair(const Entry& entry, Backend& here, const Against& there);

/// Loads the problem in every backend that a runner has.
void load(const Lineup& lineup, const Problem& problem);

/// Compiles and verifies the winner and runs each contender once; a rival besides the control that fails leaves the
/// lineup. A finding where the winner fails or no control is left.
std::optional<CellFinding> try_out(CellFinding& finding, const Problem& problem, Lineup& lineup,
                                   const CheckRequest& request);

/// The finding of a cell where the fault of a runner ended the lineup.
CellFinding ended(const CellFinding& finding, const Lineup& lineup, const ContenderFault& fault,
                  const CheckRequest& request);

CellFinding settled(CellFinding finding, Finding what, std::string reason, Remedy remedy = Remedy::none);

constexpr double kFalseDiscoveries = 0.05;  // among the cells that are called changed

struct Limits {
  double threshold = 0;  // in the logarithm
  double patience = 0;   // seconds
  Quiet quiet;
  Clock::time_point end = Clock::time_point::max();
  const std::atomic<bool>* stop = nullptr;
  bool over() const { return *stop || Clock::now() >= end; }
};

/// A change is the logarithm of a ratio, with an interval as wide to both sides.
Estimate around(double middle, double half);

/// The change from one value to another, measured independently: the logarithm of their ratio.
Estimate change_of(const Estimate& now, const Estimate& then);

/// The change of the winner's ratio to the control.
Estimate change_of_ratio(const Rounds& rounds, const Lineup& lineup);

/// Whether the median is above the threshold, and surely above 0: by 1.7 halves of the 95 % interval, 3.3 standard
/// deviations. An interval wider than the threshold underestimates the noise: then by 6 halves.
bool shows_regression(const Estimate& change, double threshold);

/// The same by the ratio to the control; where its interval is wider than the threshold, also by the winner's time over
/// the table's.
bool shows_regression(const Rounds& rounds, const Lineup& lineup, double threshold);

/// Whether further rounds are not needed to call a cell equivalent: five looks or more, 2.5 times their interval lies
/// within the threshold to both sides, and the control is not so slow that it may have been disturbed. Asking this
/// after each look hides a slowdown over the threshold in less than 1 % of cells: see CheckSimulation in the tests.
bool is_clearly_equivalent(const Rounds& rounds, const Lineup& lineup, double threshold);

/// The chance of such a slowdown, or a larger one, where nothing changed: one-sided, of the normal distribution, with
/// the interval widened as shows_regression widens it.
double chance_of_slowdown(const Estimate& change, double threshold);
double chance_of_speedup(const Estimate& change, double threshold);

/// The same by the ratio to the control or, against a table, by the part of the winner's change of time that exceeds
/// the control's: the smaller chance.
double chance_of_slowdown(const Rounds& rounds, const Lineup& lineup, double threshold);

/// The smallest slowdown, as a ratio - 1, that would be found with a chance of 95 %, measured and confirmed with this
/// interval: exp(max(t, s h) + h) - 1, where t is the threshold and h half the 95 % interval, both in the logarithm,
/// and s the halves by which a regression must exceed 0 (1.7, or 6 where h > t). The last h are 1.96 standard
/// deviations: each of the two measurements shows such a slowdown with a chance of 97.5 %.
double detectable(const Estimate& change, double threshold);

/// equivalent, improved or inconclusive by one change; regressed where that was confirmed.
Finding judge(const Estimate& change, bool confirmed, double threshold);

/// The finding of a cell whose rounds are over. `confirmed`: further rounds showed its regression again.
CellFinding judge_rounds(CellFinding finding, const Rounds& rounds, const Lineup& lineup, bool confirmed,
                         const Limits& limits);

/// Whether the mean takes a finding in: it was measured, is trusted, and its control says something.
bool has_part_in_mean(const CellFinding& finding);

/// The geometric mean of the changes of all findings that could be judged, as independent ones; its finding is
/// regressed where it shows a regression, confirmed or not. Nothing for fewer than two.
std::optional<MeanFinding> mean_of(std::span<const CellFinding> findings, double threshold);

/// The chance of a standard normal value above `z`.
double normal_tail(double z);

/// Which hypotheses may be rejected so that among those rejected the expected fraction of errors is at most `rate`
/// (Benjamini, Hochberg 1995: of m p-values in ascending order, the first k for the largest k whose p <= rate k / m).
/// A NaN is never rejected, but counts in m.
std::vector<bool> discoveries(std::span<const double> p_values, double rate);

}  // namespace moetune
