// First candidates of a search, ranked by the cost model.
#pragma once
#include <vector>

#include "variant/space/domain.h"
#include "workload/problem.h"

namespace moetune {

/// Candidates of the domain that should be the fastest by their variants' models, at most `count`, the fastest first.
/// Each differs in two knobs or more from those before it: what a model can't tell apart is asked for once. They are
/// found by a best-first search from `from`, whose first gives the values of knobs that make no difference to the
/// model. Variants without a model have none.
std::vector<Candidate> predicted_fastest(const Domain& domain, const Problem& problem, const DeviceInfo& device,
                                         const std::vector<Candidate>& from, size_t count);

}  // namespace moetune
