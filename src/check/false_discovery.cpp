// The tail of the normal distribution; the procedure of Benjamini and Hochberg.
#include "check/false_discovery.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/group.h"

namespace moetune {

double normal_tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

std::vector<bool> discoveries(std::span<const double> p_values, double rate) {
  std::vector<double> ascending = filtered(p_values, [](double p) { return !std::isnan(p); });
  std::ranges::sort(ascending);
  double limit = -1;
  for (size_t i = 0; i < ascending.size(); ++i)
    if (ascending[i] <= rate * static_cast<double>(i + 1) / static_cast<double>(p_values.size())) limit = ascending[i];
  return mapped(p_values, [&](double p) { return p <= limit; });
}

}  // namespace moetune
