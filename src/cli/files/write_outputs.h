// How commands write several outputs: one that fails doesn't prevent the others.
#pragma once
#include <functional>
#include <vector>

namespace moetune {

/// Runs all of `writers` in their order. Where some throw an Error, throws one afterwards that names each failure once,
/// with the exit code and the hint of the first.
void write_outputs(const std::vector<std::function<void()>>& writers);

}  // namespace moetune
