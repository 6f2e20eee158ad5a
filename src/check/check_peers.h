// The verdict on other libraries' times, which were measured elsewhere.
#pragma once
#include <string>

#include "check/finding.h"
#include "record/comparison.h"

namespace moetune {

/// Judges other libraries' times beside those of a file called `name`, which were measured before: the change of each
/// peer's median in each cell, beyond that of moetune-export where both have it, because its kernels don't change. The
/// intervals count as independent ones, and one of the change itself must show a regression in both `now` and `again`,
/// a second measurement, if there is one. Peers that `now` lacks have failed; those that it has alone are not judged.
CheckResult check_peers(const Peers& before, const Peers& now, const Peers* again, const std::string& name,
                        double threshold);

}  // namespace moetune
