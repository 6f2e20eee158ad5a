// Formatting and strict parsing of quantities.
#include "base/text/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/group.h"

namespace moetune {
namespace {

constexpr size_t kMaxValues = 10000;
constexpr double kLongestDuration = 366.0 * 24 * 3600;

std::string scaled(double value, std::string_view unit) {
  // Three significant digits: 1.23, 12.3, 123.
  const double size = std::abs(value);
  return fmt::format("{:.{}f} {}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, unit);
}

// Without the white space at both ends.
std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Error wrong(std::string_view what, const std::string& sentence, const std::string& hint = {}) {
  return request_error(sentence, hint).at(Where::of_option(what));
}

}  // namespace

double parse_share(std::string_view text, std::string_view what) {
  const bool percent = text.ends_with('%');
  const double value = parse_number(percent ? text.substr(0, text.size() - 1) : text, what);
  const double share = percent ? value / 100 : value;
  if (!(share > 0) || share > 1)
    throw wrong(what, fmt::format("{} is not above 0% and up to 100%", text), "write it as 5% or 0.05");
  return share;
}

std::string format_time(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0.9995e-3) return scaled(seconds * 1e6, "µs");
  if (seconds < 0.9995) return scaled(seconds * 1e3, "ms");
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : scaled(bytes, kUnits[unit]);
}

double parse_number(std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw wrong(what, fmt::format("'{}' is not a number", text));
  return value;
}

int64_t parse_integer(std::string_view text, std::string_view what, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size())
    throw wrong(what, fmt::format("{} is outside {} to {}", text, low, high));
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw wrong(what, fmt::format("'{}' is not a whole number", text));
  if (value < low || value > high) throw wrong(what, fmt::format("{} is outside {} to {}", value, low, high));
  return value;
}

double parse_duration(std::string_view text, bool may_be_zero) {
  const Error wrong = request_error(fmt::format("'{}' is not a duration", text), "write it as 90s, 5m, 1h30m or 250ms");
  double total = 0;
  std::string_view rest = trim(text);
  if (rest.empty()) throw wrong;
  while (!rest.empty()) {
    double value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) throw wrong;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    const size_t length = std::min(rest.find_first_of("0123456789."), rest.size());
    const std::string_view unit = rest.substr(0, length);
    const double scale = unit == "ms"                   ? 1e-3
                         : unit == "s" || unit.empty()  ? 1
                         : unit == "m" || unit == "min" ? 60
                         : unit == "h"                  ? 3600
                                                        : 0;
    if (scale == 0) throw wrong;
    total += value * scale;
    rest.remove_prefix(length);
  }
  if (!(total > 0) && !(may_be_zero && total == 0)) throw wrong;
  if (total > kLongestDuration)
    throw request_error(fmt::format("'{}' is longer than a year", text), "write it as 90s, 5m, 1h30m or 250ms");
  return total;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    pieces.emplace_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) pieces.emplace_back();
  }
  return pieces;
}

std::vector<int64_t> parse_integers(std::string_view text, std::string_view what, int64_t low, int64_t high) {
  std::vector<int64_t> values;
  const auto add = [&](int64_t value) {
    add_once(values, value);
    if (values.size() > kMaxValues) throw wrong(what, fmt::format("'{}' has over {} values", text, kMaxValues));
  };
  for (const std::string& piece : split(text, ',')) {
    if (piece.empty()) throw wrong(what, fmt::format("the list '{}' has an empty value", text));
    const size_t dash = piece.find('-', 1);
    if (dash == std::string::npos) {
      add(parse_integer(piece, what, low, high));
      continue;
    }
    const size_t step_at = piece.find_first_of("*+", dash + 1);
    const int64_t first = parse_integer(piece.substr(0, dash), what, low, high);
    const int64_t last = parse_integer(piece.substr(dash + 1, step_at - dash - 1), what, low, high);
    const bool stepped = step_at != std::string::npos, factor = stepped && piece[step_at] == '*';
    const int64_t step = stepped ? parse_integer(piece.substr(step_at + 1), what, factor ? 2 : 1, high) : 1;
    if (last < first) throw wrong(what, fmt::format("the range '{}' ends before it begins", piece));
    if (factor && first < 1)
      throw wrong(what, fmt::format("the range '{}' multiplies, so it must begin at 1 or more", piece));
    for (int64_t value = first; value <= last;) {
      add(value);
      if (factor ? value > last / step : value > last - step) break;
      value = factor ? value * step : value + step;
    }
  }
  if (values.empty()) throw wrong(what, "the list is empty");
  return values;
}

}  // namespace moetune
