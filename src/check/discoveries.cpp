// The procedure of Benjamini and Hochberg.
#include "check/discoveries.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetune {

double normal_tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

std::vector<bool> discoveries(std::span<const double> p_values, double rate) {
  std::vector<double> ascending;
  std::ranges::copy_if(p_values, std::back_inserter(ascending), [](double p) { return !std::isnan(p); });
  std::ranges::sort(ascending);
  double limit = -1;
  for (size_t i = 0; i < ascending.size(); ++i)
    if (ascending[i] <= rate * static_cast<double>(i + 1) / static_cast<double>(p_values.size())) limit = ascending[i];
  std::vector<bool> rejected;
  for (const double p : p_values) rejected.push_back(p <= limit);
  return rejected;
}

}  // namespace moetune
