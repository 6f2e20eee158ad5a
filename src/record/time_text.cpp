// Text of times and ratios.
#include "record/time_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text/units.h"

namespace moetune {

std::string time_text(const Measurement& measurement) {
  if (log_half_width(measurement.interval) > kUncertainTime)
    return fmt::format("{} to {}", format_time(measurement.interval.low), format_time(measurement.interval.high));
  if (measurement.samples == 1) return format_time(measurement.seconds);  // one block has no interval
  const double half = (measurement.interval.high - measurement.interval.low) / 2;
  const double percent = 100 * half / measurement.seconds;
  return fmt::format("{} ± {:.{}f} %", format_time(measurement.seconds), percent, percent < 9.95 ? 1 : 0);
}

std::string factor_text(double factor) {
  return std::isfinite(factor) ? fmt::format("{:.{}f}x", factor, factor < 99.5 ? 2 : 0) : "?";
}

std::string factor_text(double factor, const Interval& interval) {
  if (log_half_width(interval) > kUncertainRatio)
    return fmt::format("{} to {}", factor_text(interval.low), factor_text(interval.high));
  const int digits = factor < 99.5 ? 2 : 0;
  return fmt::format("{} ({:.{}f} to {:.{}f})", factor_text(factor), interval.low, digits, interval.high, digits);
}

std::string ratio_text(double factor, const Interval& interval) {
  if (log_half_width(interval) > kUncertainRatio) return factor_text(factor, interval);
  const double percent = 100 * (interval.high - interval.low) / 2 / factor;
  return fmt::format("{} ± {:.{}f} %", factor_text(factor), percent, percent < 9.95 ? 1 : 0);
}

std::string speedup_text(const Rival* rival, bool interval) {
  if (rival == nullptr || !(rival->ratio > 0)) return "?";
  const Interval speedups = {1 / rival->ratio_interval.high, 1 / rival->ratio_interval.low};
  return interval ? factor_text(1 / rival->ratio, speedups) : ratio_text(1 / rival->ratio, speedups);
}

}  // namespace moetune
