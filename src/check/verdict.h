// What the rounds of one cell show: how the winner changed, whether that counts, what speaks against it, and the words
// for it. Measures nothing.
#pragma once
#include <optional>
#include <span>

#include "check/finding.h"
#include "check/lineup.h"
#include "check/smallest_effect.h"

namespace moetune {

/// The rounds of a lineup, and how a quantity changed in them.
struct Evidence {
  const Rounds& rounds;
  const Lineup& lineup;
  Quantity quantity = kTime;

  /// The change of the winner's ratio to a rival, or to the control.
  Estimate ratio_to(size_t rival) const;
  Estimate ratio() const { return ratio_to(lineup.rivals.size() - 1); }
  /// Against a table: the change of the winner's own value, and the part of it that exceeds the control's.
  Estimate value() const;
  Estimate excess() const;
  /// The control's value over that in the table.
  double control_moved() const;
  /// Between the two sides that both run the witness.
  Estimate witness() const;

  /// Whether the ratio to the control increased; where its interval is wider than the effect, also whether the excess
  /// over the table did.
  bool is_increase(const SmallestEffect& effect) const;
  /// The chance of that where nothing changed: the smaller one of the ratio's and the excess's.
  double chance_of_increase(const SmallestEffect& effect) const;
};

/// How far code that can't have changed may move before the machine is what changed.
struct ControlLimits {
  double moved = 1.25;   // times as slow or as fast as in the table: a change is not trusted
  double stayed = 1.15;  // the same where rounds with a slow control were left out
  double elsewhere = 2;  // no ratio says anything; against a program, that is so beyond `moved`
};

/// What a cell is judged by.
struct Rules {
  SmallestEffect effect;
  ControlLimits control = {};
  bool leaves_out = false;  // rounds with a slow control
};

/// Whether further rounds are not needed to call a cell equivalent: five looks or more, their change is clearly smaller
/// than the effect, and the control is not so slow that it may have been disturbed. Asking this after each look hides a
/// slowdown over the threshold in less than 1 % of cells: see CheckSimulation in the tests.
bool is_clearly_equivalent(const Evidence& evidence, const Rules& rules);

/// The finding of a cell whose rounds are over. `confirmed`: further rounds showed its regression again. Too few rounds
/// for an interval leave it inconclusive.
CellFinding judge_rounds(CellFinding finding, const Evidence& evidence, bool confirmed, const Rules& rules);

/// Whether the mean takes a finding in: it was measured, is trusted, and its control says something.
bool has_part_in_mean(const CellFinding& finding);

/// The geometric mean of the changes of all findings that could be judged, as independent ones; its finding is
/// regressed where it shows a regression, confirmed or not. Nothing for fewer than two.
std::optional<MeanFinding> mean_of(std::span<const CellFinding> findings, const SmallestEffect& effect);

}  // namespace moetune
