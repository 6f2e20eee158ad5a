// What a cell is, part by part: columns of CSV, and what options pick cells by.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "workload/problem.h"

namespace moetune {

/// Names and values, in order.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// The cell's id, the parts of its layer and shape, tokens, routing and seed. Fusions are "true" or "false".
Fields fields_of(const Cell& cell);

}  // namespace moetune
