// Scales, ticks, lines and markers.
#include "report/report_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text/text.h"

namespace moetune {
namespace {

constexpr double kWidth = 360, kHeight = 240;
constexpr double kHalfDigit = 4;  // half the width of a label's digit, at most
constexpr double kLeft = 50, kRight = kWidth - 12, kTop = 12, kBottom = kHeight - 40;
constexpr int kColours = 8;       // of report.css
constexpr int kMaxTicks = 10;     // of steps of at least a fifth of the scale
constexpr double kAbsurd = 1e30;  // no time, rate or size comes near it
constexpr double kLabelRoom[] = {34, 18};

// From values to places in the picture.
class Scale {
 public:
  Scale(const ChartAxis& axis, std::vector<double> values, double begin, double end)
      : logarithmic_(axis.logarithmic), begin_(begin), end_(end) {
    low_ = *std::ranges::min_element(values), high_ = *std::ranges::max_element(values);
    if (logarithmic_) {
      const double margin = std::max(0.04 * std::log(high_ / low_), high_ > low_ ? 0 : std::log(1.5));
      low_ *= std::exp(-margin), high_ *= std::exp(margin);
    } else {
      if (axis.from_zero) low_ = std::min(0.0, low_);
      const double margin = high_ > low_ ? 0.06 * (high_ - low_) : 1;
      high_ += margin;
      if (!axis.from_zero) low_ -= margin;
    }
  }
  double low() const { return low_; }
  double high() const { return high_; }
  double operator()(double value) const {
    const double part =
        logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return begin_ + part * (end_ - begin_);
  }

 private:
  bool logarithmic_;
  double begin_, end_, low_ = 0, high_ = 1;
};

std::vector<double> powers(double low, double high, const std::vector<double>& digits, int step) {
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::log10(high); ++power) {
    if (power % step != 0) continue;
    for (const double digit : digits)
      if (const double tick = digit * std::pow(10, power); tick >= low && tick <= high) ticks.push_back(tick);
  }
  return ticks;
}

std::vector<double> multiples(double low, double high) {
  const double raw = (high - low) / 5, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double digit : {5.0, 2.0, 1.0})
    if (digit * power >= raw) step = digit * power;
  const double first = std::ceil(low / step);
  std::vector<double> ticks;
  for (int i = 0; i < kMaxTicks; ++i)
    if (const double tick = (first + i) * step; tick <= high) ticks.push_back(std::abs(tick) < step / 1e6 ? 0 : tick);
  return ticks;
}

// Those within the scale and `room` away from all before.
std::vector<double> with_room(const std::vector<double>& ticks, const Scale& scale, double room) {
  std::vector<double> kept;
  for (const double tick : ticks)
    if (tick >= scale.low() && tick <= scale.high() &&
        std::ranges::none_of(kept, [&](double one) { return std::abs(scale(tick) - scale(one)) < room; }))
      kept.push_back(tick);
  return kept;
}

std::vector<double> ticks_of(const ChartAxis& axis, const Scale& scale, double room) {
  if (!axis.ticks.empty()) return with_room(axis.ticks, scale, room);
  if (!axis.logarithmic) return multiples(scale.low(), scale.high());
  std::vector<double> ticks = powers(scale.low(), scale.high(), {1, 2, 5}, 1);
  if (ticks.size() < 3) return with_room(multiples(scale.low(), scale.high()), scale, room);
  if (with_room(ticks, scale, room).size() < ticks.size()) ticks = powers(scale.low(), scale.high(), {1}, 1);
  for (int step = 2; with_room(ticks, scale, room).size() < ticks.size() && step < 8; ++step)
    ticks = powers(scale.low(), scale.high(), {1}, step);
  return with_room(ticks, scale, room);
}

std::string frame(const Chart& chart, const Scale& x, const Scale& y) {
  std::string grid, labels;
  for (const double tick : ticks_of(chart.x, x, kLabelRoom[0])) {
    grid += fmt::format("M{:.1f} {}V{}", x(tick), kTop, kBottom);
    const std::string label = fmt::format("{:.6g}", tick);
    const double middle = std::min(x(tick), kWidth - kHalfDigit * static_cast<double>(label.size()));
    labels += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", middle, kBottom + 14, label);
  }
  for (const double tick : ticks_of(chart.y, y, kLabelRoom[1])) {
    grid += fmt::format("M{} {:.1f}H{}", kLeft, y(tick), kRight);
    labels +=
        fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>", kLeft - 5, y(tick) + 4, tick);
  }
  const double middle = (kTop + kBottom) / 2;
  return fmt::format(
      "<path class=\"grid\" d=\"{}\"/><path class=\"axis\" d=\"M{} {}V{}H{}\"/>{}<text x=\"{}\" y=\"{}\" "
      "text-anchor=\"middle\">{}</text><text x=\"12\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 12 "
      "{})\">{}</text>",
      grid, kLeft, kTop, kBottom, kRight, labels, (kLeft + kRight) / 2, kHeight - 8, html_text(chart.x.label), middle,
      middle, html_text(chart.y.label));
}

// A style of a second round through the colours has hollow markers.
std::string classes(int style) { return fmt::format("s{}{}", style % kColours, style >= kColours ? " hollow" : ""); }

// From the middle of a marker to where its outline begins, and the outline. The last is that of hollow circles.
struct Marker {
  double x, y;
  std::string_view outline;
};
constexpr Marker kMarkers[kColours + 1] = {
    {-4, 0, "a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"},
    {-3.5, -3.5, "h7v7h-7z"},
    {0, -4.5, "l4.5 8h-9z"},
    {0, -4.5, "l4.5 4.5l-4.5 4.5l-4.5 -4.5z"},
    {0, 4.5, "l4.5 -8h-9z"},
    {-4.5, -1.5, "h9v3h-9z"},
    {-1.5, -4.5, "v9h3v-9z"},
    {-3.5, -3.5, "l7 7v-7l-7 7z"},
    {-3.5, 0, "a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z"},
};

std::string marker(int style, double x, double y) {
  const Marker& shape = kMarkers[style > 0 && style % kColours == 0 ? kColours : style % kColours];
  return fmt::format("M{:.1f} {:.1f}{}", x + shape.x, y + shape.y, shape.outline);
}

constexpr std::string_view kArrowUp = "m0 -5l4.5 5h-3v5h-3v-5h-3z", kArrowDown = "m0 5l4.5 -5h-3v-5h-3v5h-3z";

double limited(const ChartAxis& axis, double value) {
  return axis.max > 0 ? std::clamp(value, axis.min, axis.max) : value;
}

// The place of an interval's end, which may lie outside the scale.
double within(const Scale& scale, double value) { return scale(std::clamp(value, scale.low(), scale.high())); }

std::string drawn(const Series& series, const std::vector<ChartPoint>& points, const Scale& x, const Scale& y,
                  const ChartAxis& axis) {
  std::string line, whiskers, markers;
  for (const ChartPoint& point : points) {
    const double value = limited(axis, point.y.value), place = y(value);
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", x(point.x), place);
    if (point.y.low > 0)
      whiskers += fmt::format("M{:.1f} {:.1f}V{:.1f}", x(point.x), within(y, point.y.low), within(y, point.y.high));
    if (!series.markers) continue;
    const std::string shape = value == point.y.value ? marker(series.style, x(point.x), place)
                                                     : fmt::format("M{:.1f} {:.1f}{}", x(point.x), place,
                                                                   value < point.y.value ? kArrowUp : kArrowDown);
    markers += fmt::format("<path d=\"{}\"><title>{}</title></path>", shape, html_text(point.title));
  }
  std::string out = fmt::format("<g class=\"{}\">", classes(series.style));
  if (series.line && points.size() > 1)
    out += fmt::format("<path class=\"line{}\" d=\"{}\"/>", series.dashed ? " dashed" : "", line);
  if (!whiskers.empty()) out += fmt::format("<path class=\"line\" d=\"{}\"/>", whiskers);
  return out + markers + "</g>";
}

std::string opened(const std::string& description) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                     html_text(description));
}

bool fits(double value, const ChartAxis& axis) {
  return std::abs(value) < kAbsurd && (!axis.logarithmic || value > 1 / kAbsurd);
}

}  // namespace

std::string svg(const Chart& chart) {
  std::vector<std::vector<ChartPoint>> kept;
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    kept.emplace_back();
    for (const ChartPoint& point : series.points) {
      if (!fits(point.x, chart.x) || !fits(point.y.value, chart.y)) continue;
      kept.back().push_back(point);
      xs.push_back(point.x), ys.push_back(limited(chart.y, point.y.value));
      if (!(point.y.low > 0)) continue;
      for (const double end : {point.y.low, point.y.high})
        if (fits(end, chart.y)) ys.push_back(limited(chart.y, end));
    }
  }
  if (xs.empty()) return "";
  const Scale x(chart.x, xs, kLeft, kRight), y(chart.y, ys, kBottom, kTop);
  std::string out = opened(chart.description) + frame(chart, x, y);
  for (size_t i = kept.size(); i-- > 0;)  // the first lies on top
    if (!kept[i].empty()) out += drawn(chart.series[i], kept[i], x, y, chart.y);
  return out + "</svg>";
}

std::string svg_sample(int style) {
  return fmt::format(
      "<svg class=\"sample\" viewBox=\"0 0 24 12\" aria-hidden=\"true\"><g class=\"{}\"><path class=\"line\" d=\"M0 "
      "6H24\"/><path d=\"{}\"/></g></svg>",
      classes(style), marker(style, 12, 6));
}

}  // namespace moetune
