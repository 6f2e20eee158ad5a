// Where a search begins: what won cells like the one at hand.
#pragma once
#include <vector>

#include "record/table/table.h"
#include "workload/problem.h"

namespace moetune {

struct WarmStart {
  std::vector<Candidate> candidates;  // the nearest cell's first, each once
  bool near = false;                  // whether a few more candidates will do
};

/// The winners of those twelve cells, of the same op and width of elements, that differ least from this one: in the
/// logarithm of the rows of the mean and of the largest expert, of n and k, and in fusions. One of the same shape with
/// at most 1.5 times the rows, or two thirds of them, is near.
WarmStart warm_start(const Problem& problem, const std::vector<const Entry*>& entries);

}  // namespace moetune
