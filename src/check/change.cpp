// Logarithms of ratios and times against those of the table.
#include "check/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetune {
namespace {

Estimate change_of(const Estimate& now, const Estimate& then) {
  return around(std::log(now.value / then.value), std::hypot(log_half_width(now), log_half_width(then)));
}

}  // namespace

Estimate around(double middle, double half) { return {middle, middle - half, middle + half}; }

std::string percent(double log_change) { return fmt::format("{:+.1f} %", 100 * std::expm1(log_change)); }

std::string percent(const Estimate& change) {
  return fmt::format("{} ({} to {})", percent(change.value), percent(change.low), percent(change.high));
}

Estimate change_against(const Rounds& rounds, const Bout& bout, size_t rival) {
  return change_of(paired_ratio(rounds, 0, 1 + rival), bout.rivals[rival].ratio);
}

Estimate change_of_ratio(const Rounds& rounds, const Bout& bout) {
  return change_against(rounds, bout, bout.rivals.size() - 1);
}

Estimate change_of_time(const Rounds& rounds, const Bout& bout) {
  return change_of(time_of(rounds, 0), bout.entry->measurement.time);
}

double control_moved(const Rounds& rounds, const Bout& bout) {
  return median(rounds.seconds.back()) / bout.control().measurement.time.value;
}

Estimate change_of_witness(const Rounds& rounds) { return change_of(paired_ratio(rounds, 1, 2), {1, 1, 1}); }

Estimate excess_of_time(const Rounds& rounds, const Bout& bout) {
  const Estimate change = change_of_time(rounds, bout);
  return around(change.value - std::max(0.0, std::log(control_moved(rounds, bout))), half_width(change));
}

}  // namespace moetune
