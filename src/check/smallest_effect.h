// The smallest change that counts: a rule with its parameters, for any quantity of which less is better.
#pragma once
#include "base/stats.h"
#include "check/finding.h"

namespace moetune {

/// A change is the logarithm of a ratio, now over then, with an interval as wide to both sides.
Estimate around(double middle, double half);

/// The change from one value to another, measured independently.
Estimate change_of(const Estimate& now, const Estimate& then);

/// The ratio - 1 that a change stands for.
Estimate as_ratio(const Estimate& change);

/// Widths are halves of a change's 95 % interval, that is 1.96 standard deviations.
struct SmallestEffect {
  double size = 0;             // of a change that counts, in the logarithm
  double sure = 1.7;           // widths by which an increase exceeds 0: by chance alone in 1 of 2000
  double sure_when_noisy = 6;  // the same of a width above `size`: such an interval underestimates the noise
  double clear = 2.5;          // widths that must fit below `size` where measuring ends early

  /// Whether the median is above `size`, and surely above 0.
  bool is_increase(const Estimate& change) const;
  /// Whether further rounds are not needed to rule out a change of this size.
  bool is_clearly_smaller(const Estimate& change) const;

  /// The chance of such an increase, or a larger one, where nothing changed: one-sided, of the normal distribution,
  /// with the interval widened as is_increase widens it. And that of a decrease.
  double chance_of_increase(const Estimate& change) const;
  double chance_of_decrease(const Estimate& change) const;

  /// The smallest increase, as a ratio - 1, that would be found with a chance of 95 %, measured and confirmed with this
  /// interval: exp(max(size, s h) + h) - 1, where h is the width and s the widths by which an increase must exceed 0.
  /// Each of the two measurements then shows it with a chance of 97.5 %.
  double detectable(const Estimate& change) const;

  /// equivalent, improved or inconclusive by one change; regressed where an increase was confirmed.
  Finding judge(const Estimate& change, bool confirmed) const;

 private:
  double sureness(const Estimate& change) const { return half_width(change) <= size ? sure : sure_when_noisy; }
};

}  // namespace moetune
