// Which entries of a table are certain enough to judge by.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "record/table/table.h"

namespace moetune {
namespace {

// "12 %", "over 100 %": from the half width of an interval, in the logarithm.
std::string half_text(double half) {
  const double percent = 100 * std::expm1(half);
  return percent > 100 ? "over 100 %" : fmt::format("{:.0f} %", percent);
}

}  // namespace

std::string uncertainty(const Entry& entry) {
  if (!entry.skipped.empty()) return "";
  const Rival* control = find_control(entry);
  const double waited = std::max(entry.measurement.waited, control ? control->measurement.waited : 0);
  if (waited > kBusy) return fmt::format("other programs took {:.0f} % of the processors' time", 100 * waited);
  const int rounds = std::min(entry.measurement.time.samples, control ? control->measurement.time.samples : kFewest);
  if (rounds < kFewest) return fmt::format("its final has {} of the {} rounds that an interval needs", rounds, kFewest);
  if (control && log_half_width(control->ratio) > kUncertainRatio)
    return fmt::format("its ratio to {} is uncertain by {}", control->name, half_text(log_half_width(control->ratio)));
  if (const double half = log_half_width(entry.measurement.time); half > kUncertainTime)
    return fmt::format("its time is uncertain by {}", half_text(half));
  return "";
}

const Rival* find_control(const Entry& entry, const std::vector<std::string>* offered) {
  const Rival* fastest = nullptr;
  for (const Rival& rival : entry.rivals) {
    const bool here = !offered || std::find(offered->begin(), offered->end(), rival.name) != offered->end();
    if (rival.name == "default" || !here) continue;
    if (!fastest || rival.measurement.time.value < fastest->measurement.time.value) fastest = &rival;
  }
  if (fastest) return fastest;
  const Rival* fallback = find_rival(entry, "default");
  return fallback && fallback->candidate != entry.candidate ? fallback : nullptr;
}

bool contradicts_times(const Entry& entry, const Rival& rival) {
  const Estimate &winner = entry.measurement.time, &other = rival.measurement.time;
  const double slack = std::exp(kUncertainRatio);
  return rival.ratio.low > slack * winner.high / other.low || slack * rival.ratio.high < winner.low / other.high;
}

std::string distrust(const Entry& entry) {
  if (std::string reason = uncertainty(entry); !reason.empty() || !entry.skipped.empty()) return reason;
  for (const Rival& rival : entry.rivals)
    if (contradicts_times(entry, rival))
      return fmt::format("its ratio to {}, {:.4g}, contradicts their times", rival.name, rival.ratio.value);
  return "";
}

}  // namespace moetune
