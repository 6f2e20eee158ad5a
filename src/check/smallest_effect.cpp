// Normal approximations of what an interval says.
#include "check/smallest_effect.h"

#include <algorithm>
#include <cmath>

#include "check/false_discovery.h"

namespace moetune {

Estimate around(double middle, double half) { return {middle, middle - half, middle + half}; }

Estimate change_of(const Estimate& now, const Estimate& then) {
  return around(std::log(now.value / then.value), std::hypot(log_half_width(now), log_half_width(then)));
}

Estimate as_ratio(const Estimate& change) {
  return {std::expm1(change.value), std::expm1(change.low), std::expm1(change.high)};
}

bool SmallestEffect::is_increase(const Estimate& change) const {
  return change.value > size && change.value > sureness(change) * half_width(change);
}

bool SmallestEffect::is_clearly_smaller(const Estimate& change) const {
  return std::abs(change.value) + clear * half_width(change) < size;
}

double SmallestEffect::chance_of_increase(const Estimate& change) const {
  constexpr double kDeviations = 1.959964;  // in a width
  if (change.value <= 0) return 1;
  return normal_tail(kDeviations * change.value * sure / (half_width(change) * sureness(change)));
}

double SmallestEffect::chance_of_decrease(const Estimate& change) const {
  return chance_of_increase(around(-change.value, half_width(change)));
}

double SmallestEffect::detectable(const Estimate& change) const {
  return std::expm1(std::max(size, sureness(change) * half_width(change)) + half_width(change));
}

Finding SmallestEffect::judge(const Estimate& change, bool confirmed) const {
  if (confirmed) return Finding::regressed;
  if (!(change.high < size) && !(half_width(change) <= size)) return Finding::inconclusive;
  if (change.value > size) return Finding::inconclusive;  // it was not confirmed
  if (change.value < -size && change.high < 0) return Finding::improved;
  if (change.low < -size && half_width(change) > size) return Finding::inconclusive;  // it may be faster
  return Finding::equivalent;
}

}  // namespace moetune
