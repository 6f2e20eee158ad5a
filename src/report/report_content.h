// What a report is made of, before it is HTML or Markdown: sections of paragraphs, tables and charts. All text is
// plain. Charts are SVG that stands inside an HTML page, whose style sheet gives the colours.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/stats.h"
#include "base/text/grid.h"
#include "report/report.h"

namespace moetune {

inline constexpr double kTera = 1e12;

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

struct ChartAxis {
  std::string label;
  bool logarithmic = false;
  std::vector<double> ticks = {};  // chosen where empty; those off the scale or without room for a label are left out
  bool from_zero = true;           // of a linear axis
};

struct Chart {
  std::string description;  // for readers that show no pictures
  ChartAxis x, y;
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

struct Figure {
  std::string caption;
  std::string svg;  // HTML only; empty = nothing is shown
};

struct ReportPart {
  std::string heading = {};  // of the part; empty = none
  std::vector<std::string> paragraphs = {};
  std::vector<std::string> legend = {};  // names of the styles 0, 1, ... of the figures
  std::vector<Figure> figures = {};
  Grid grid = {};  // empty = no table
  /// Of a heat map, [rows][columns]: 0 best to 5, -1 = none; empty = no heat map.
  std::vector<std::vector<int>> shades = {};
  bool folded = false;  // HTML shows it on demand
};

struct ReportSection {
  std::string title;
  std::vector<ReportPart> parts;
};

/// In the order of the page. A section says what is missing where it has nothing to show.
ReportSection summary_section(const ReportInput& input);
ReportSection results_section(const ReportInput& input);
ReportSection roofline_section(const ReportInput& input);
ReportSection routing_section(const ReportInput& input);
ReportSection block_section(const ReportInput& input);
ReportSection knob_section(const ReportInput& input);
ReportSection search_section(const ReportInput& input);
ReportSection failure_section(const ReportInput& input);
ReportSection clock_section(const ReportInput& input);

/// "zipf:1, seed 3"; a seed of 0 is not told.
std::string routing_title(const Cell& cell);

/// "4096 tokens, zipf:1, seed 3": what tells the cells of a shape apart.
std::string cell_title(const Cell& cell);

/// The times beside the winner's: "default", baselines, then peers, each name once, in the order of the input. The
/// winner is style 0 of a chart, these are styles 1, 2, ....
std::vector<std::string> other_names(const ReportInput& input);

/// The time of one of these in a cell; null where it has none.
const Measurement* other_time(const ReportInput& input, const Entry& entry, const std::string& name);

/// How many times as long as the winner one of these takes: of a rival from paired rounds, of a peer from two
/// independent medians. Nothing where a cell lacks either.
std::optional<Estimate> speed_up(const ReportInput& input, const Entry& entry, const std::string& name);

/// All trials of the journal in a cell, in order; null without any.
const std::vector<Trial>* recorded_trials(const ReportInput& input, const Cell& cell);

/// The last trial of each candidate of a cell that was timed; empty without a journal.
std::vector<const Trial*> timed_trials(const ReportInput& input, const Cell& cell);

/// "+3.1 %" of 0.031, "best" of 0.
std::string loss_text(double loss);

/// The paragraph of a section that needs the journal, where there is none.
std::string no_journal();

}  // namespace moetune
