// Text of times and ratios.
#include "record/time_text.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text/units.h"

namespace moetune {

std::string time_text(const Estimate& time) {
  if (log_half_width(time) > kUncertainTime)
    return fmt::format("{} to {}", format_time(time.low), format_time(time.high));
  if (time.samples == 1) return format_time(time.value);  // one block has no interval
  const double percent = 100 * half_width(time) / time.value;
  return fmt::format("{} ± {:.{}f} %", format_time(time.value), percent, percent < 9.95 ? 1 : 0);
}

std::string factor_text(double factor) {
  return std::isfinite(factor) ? fmt::format("{:.{}f}x", factor, factor < 99.5 ? 2 : 0) : "?";
}

std::string factor_text(const Estimate& factor) {
  if (log_half_width(factor) > kUncertainRatio)
    return fmt::format("{} to {}", factor_text(factor.low), factor_text(factor.high));
  const int digits = factor.value < 99.5 ? 2 : 0;
  return fmt::format("{} ({:.{}f} to {:.{}f})", factor_text(factor.value), factor.low, digits, factor.high, digits);
}

std::string ratio_text(const Estimate& factor) {
  if (log_half_width(factor) > kUncertainRatio) return factor_text(factor);
  const double percent = 100 * half_width(factor) / factor.value;
  return fmt::format("{} ± {:.{}f} %", factor_text(factor.value), percent, percent < 9.95 ? 1 : 0);
}

std::string speedup_text(const Rival* rival, bool interval) {
  if (rival == nullptr || !(rival->ratio.value > 0)) return "?";
  return interval ? factor_text(1 / rival->ratio) : ratio_text(1 / rival->ratio);
}

}  // namespace moetune
