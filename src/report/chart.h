// Charts as SVG that stands inside an HTML page, whose style sheet gives the colours. What they show comes from others.
#pragma once
#include <string>
#include <vector>

#include "base/stats.h"

namespace moetune {

/// `title` is shown where a pointer rests on the point; plain text.
struct ChartPoint {
  double x = 0;
  Estimate y = {};  // its interval is drawn as a whisker, where low > 0
  std::string title = {};
};

/// `style` 0, 1, ... chooses a colour and a marker; equal styles look the same in every chart.
struct Series {
  int style = 0;
  bool line = true, markers = true, dashed = false;
  std::vector<ChartPoint> points;
};

struct Axis {
  std::string label;
  bool logarithmic = false;
  std::vector<double> ticks = {};  // chosen where empty; those off the scale or without room for a label are left out
  bool from_zero = true;           // of a linear axis
};

struct Chart {
  std::string description;  // for readers that show no pictures
  Axis x, y;
  std::vector<Series> series;
};

/// Points that are not finite, absurdly large, or not above 0 on a logarithmic axis, are left out. Empty text where no
/// point is left.
std::string svg(const Chart& chart);

struct Bar {
  std::string label;
  double value = 0;
  std::string title;
};
/// One bar per value, from 0, with the value above it. Empty text where there are no bars.
std::string svg_bars(const std::string& description, const std::string& x_label, const std::vector<Bar>& bars);

/// The line and marker of a style, for a legend.
std::string svg_sample(int style);

}  // namespace moetune
