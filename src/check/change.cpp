// Logarithms of ratios and times against those of the table.
#include "check/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetune {

std::string percent(double log_change) { return fmt::format("{:+.1f} %", 100 * std::expm1(log_change)); }

std::string text(const Change& change) {
  return fmt::format("{} ({} to {})", percent(change.middle), percent(change.low()), percent(change.high()));
}

Change change_against(const Rounds& rounds, const Bout& bout, size_t rival) {
  const Rival& then = bout.rivals[rival];
  const Ratio now = paired_ratio(rounds, 0, 1 + rival);
  return {std::log(now.median / then.ratio),
          std::hypot(log_half_width(now.interval), log_half_width(then.ratio_interval))};
}

Change change_of_ratio(const Rounds& rounds, const Bout& bout) {
  return change_against(rounds, bout, bout.rivals.size() - 1);
}

Change change_of_time(const Rounds& rounds, const Bout& bout) {
  const Measurement& then = bout.entry->measurement;
  const Ratio now = time_of(rounds, 0);
  return {std::log(now.median / then.seconds), std::hypot(log_half_width(now.interval), log_half_width(then.interval))};
}

double control_moved(const Rounds& rounds, const Bout& bout) {
  return median(rounds.seconds.back()) / bout.control().measurement.seconds;
}

Change change_of_witness(const Rounds& rounds) {
  const Ratio ratio = paired_ratio(rounds, 1, 2);
  return {std::log(ratio.median), log_half_width(ratio.interval)};
}

Change excess_of_time(const Rounds& rounds, const Bout& bout) {
  Change change = change_of_time(rounds, bout);
  change.middle -= std::max(0.0, std::log(control_moved(rounds, bout)));
  return change;
}

}  // namespace moetune
