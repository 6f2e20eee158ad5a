// When measuring stops: rules as values, each with its parameters. They judge estimates and samples of any quantity.
#pragma once
#include <atomic>
#include <chrono>
#include <optional>
#include <span>

#include "base/stats.h"
#include "record/measurement.h"

namespace moetune {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
inline Clock::duration clock_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
/// When a budget of so many seconds that begins now ends: never for 0.
inline Clock::time_point end_of_budget(double seconds) {
  return seconds > 0 ? Clock::now() + clock_seconds(seconds) : Clock::time_point::max();
}

/// Stops before the planned number of rounds: when the user asks for it, or `grace` seconds after the end of the time,
/// so that what is nearly done is not cut short. One round is measured in any case, and `fewest` where they take no
/// longer than another `grace`, because fewer give no useful interval.
struct StopEarly {
  const std::atomic<bool>* stop = nullptr;
  Clock::time_point end = Clock::time_point::max();
  int fewest = kFewest;
  double grace = 1;
  std::optional<Clock::time_point> noticed = {};

  /// Whether nothing new may begin.
  bool due() const { return (stop && *stop) || Clock::now() >= end; }
  /// Whether what is under way must end.
  bool overdue() const { return (stop && *stop) || Clock::now() - clock_seconds(grace) >= end; }
  /// Whether to stop after so many rounds.
  bool holds(int rounds) {
    if (!overdue()) return false;
    if (!noticed) noticed = Clock::now();
    return rounds >= fewest || (rounds > 0 && seconds_since(*noticed) > grace);
  }
};

/// Stops when a ratio is certain, at the latest after `stretch` times the planned rounds.
struct StopWhenCertain {
  double half_width = 0.01;  // of the ratio's interval, in the logarithm
  int stretch = 3;

  bool holds(const Estimate& ratio) const { return log_half_width(ratio) <= half_width; }
};

/// Stops sampling a candidate that cannot win: each of its first `samples` is more than `factor` times the best. Two
/// samples, because something may have disturbed one.
struct StopWhenHopeless {
  double factor = 1.5;
  size_t samples = 2;

  bool is_far(double sample, double best) const { return sample > factor * best; }
};

}  // namespace moetune
