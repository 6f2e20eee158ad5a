// Whether what was tuned for one shape answers for another.
#pragma once
#include <string>
#include <vector>

#include "workload/shape.h"

namespace moetune {

/// Differences that make two shapes different computations, as in "experts 8 (asked: 4)". The names of model and
/// projection do not count.
std::vector<std::string> shape_differences(const Shape& asked, const Shape& found);

}  // namespace moetune
