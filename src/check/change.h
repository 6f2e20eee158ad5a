// How a cell changed since its table was made, or against another program: the winner's ratios to its rivals, and its
// time. Verdicts: rules.h.
#pragma once
#include <string>

#include "check/bout.h"

namespace moetune {

/// Changes are logarithms here, with intervals as wide to both sides.
Estimate around(double middle, double half);

/// "+8.0 %" of a change's logarithm, and "+8.0 % (+7.0 % to +9.0 %)".
std::string percent(double log_change);
std::string percent(const Estimate& log_change);

/// The change of the winner's ratio to rivals[rival], and of its ratio to the control.
Estimate change_against(const Rounds& rounds, const Bout& bout, size_t rival);
Estimate change_of_ratio(const Rounds& rounds, const Bout& bout);

/// The change of the winner's time; and the part of it that exceeds the change of the control's time.
Estimate change_of_time(const Rounds& rounds, const Bout& bout);
Estimate excess_of_time(const Rounds& rounds, const Bout& bout);

/// The control's time now over its time in the table.
double control_moved(const Rounds& rounds, const Bout& bout);

/// The difference in time of the baseline that both programs of a pair run, which should be 0.
Estimate change_of_witness(const Rounds& rounds);

}  // namespace moetune
