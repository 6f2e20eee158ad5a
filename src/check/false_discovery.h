// Which of many changes are real, when each may be chance.
#pragma once
#include <span>
#include <vector>

namespace moetune {

constexpr double kFalseDiscoveries = 0.05;  // among the cells that are called changed

/// The chance of a standard normal value above `z`.
double normal_tail(double z);

/// Which hypotheses may be rejected so that among those rejected the expected fraction of errors is at most `rate`
/// (Benjamini, Hochberg 1995: of m p-values in ascending order, the first k for the largest k whose p <= rate k / m).
/// A NaN is never rejected, but counts in m.
std::vector<bool> discoveries(std::span<const double> p_values, double rate);

}  // namespace moetune
