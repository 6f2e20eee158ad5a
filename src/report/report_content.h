// What a report is made of, before it is HTML or Markdown: sections of paragraphs, tables and charts. All text is
// plain. Charts are SVG that stands inside an HTML page, whose style sheet gives the colours.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/stats.h"
#include "base/text/grid.h"
#include "report/report.h"

namespace moetune {

inline constexpr double kTera = 1e12;
inline constexpr const char* kWinner = "winner";

/// `title` is shown where a pointer rests on the point; plain text.
struct ChartPoint {
  double x = 0;
  Estimate y = {};  // its interval is drawn as a whisker, where low > 0
  std::string title = {};
};

/// `style` 0, 1, ... chooses a colour and a marker.
struct Series {
  int style = 0;
  bool line = true, markers = true, dashed = false;
  std::vector<ChartPoint> points = {};
};

struct ChartAxis {
  std::string label;
  bool logarithmic = false;
  std::vector<double> ticks = {};  // chosen if empty; the first go first where there is no room for all
  bool from_zero = true;           // of a linear axis
  double min = 0, max = 0;         // of y: a point beyond is an arrow at the edge; 0 = no limit
};

struct Chart {
  std::string description;  // for readers that show no pictures
  ChartAxis x, y;
  std::vector<Series> series = {};
};

/// Points that are not finite, absurdly large, or not above 0 on a logarithmic axis, are left out. Empty text where no
/// point is left.
std::string svg(const Chart& chart);

/// The line and marker of a style, for a legend.
std::string svg_sample(int style);

/// What a style stands for.
struct LegendEntry {
  int style = 0;
  std::string name;
};

struct Figure {
  std::string caption;
  std::string svg;  // HTML only; empty = nothing is shown
  std::vector<LegendEntry> legend = {};
};

struct ReportPart {
  std::string heading = {};  // of the part; empty = none
  std::vector<std::string> paragraphs = {};
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

/// What the page begins with: the answer in a sentence, and one chart.
ReportPart opening(const ReportInput& input);

/// In the order of the page. A section says what is missing where it has nothing to show.
ReportSection summary_section(const ReportInput& input);
ReportSection results_section(const ReportInput& input);
ReportSection routing_section(const ReportInput& input);
ReportSection block_section(const ReportInput& input);
ReportSection knob_section(const ReportInput& input);
ReportSection search_section(const ReportInput& input);
ReportSection failure_section(const ReportInput& input);
ReportSection history_section(const ReportInput& input);

/// The times beside the winner's: "default", baselines, then peers, each name once, in the order of the input.
std::vector<std::string> other_names(const ReportInput& input);

/// The time of one of these in a cell; null where it has none.
const Measurement* other_time(const ReportInput& input, const Entry& entry, const std::string& name);

/// How many times as long as the winner one of these takes: of a rival from paired rounds, of a peer from two
/// independent medians. Nothing where a cell lacks either.
std::optional<Estimate> speed_up(const ReportInput& input, const Entry& entry, const std::string& name);

/// Why a cell's winner is not the fastest that the report knows of: "150 % slower than triton". Empty where it is, or
/// where the intervals leave that open.
std::string beaten_text(const ReportInput& input, const Entry& entry);

/// In each cell that has it, the time of the winner, one of other_names(), the fastest of the baselines and peers, or a
/// roof, over the winner's. A roof is the least time that the device's peak arithmetic or its memory bandwidth allows.
inline constexpr const char *kDefault = "default", *kFastest = "fastest baseline or peer";
inline constexpr const char *kComputeRoof = "compute roof", *kMemoryRoof = "memory roof";
std::vector<double> ratios_of(const ReportInput& input, const Entries& entries, const std::string& name);
/// "1.26x (0.98x to 2.1x)", the geometric mean of one value or more with their range.
std::string range_text(const std::vector<double>& ratios);

/// A chart of times over the winner's, over tokens: of the winner, the default, the roofs, and the fastest of the
/// others, or each of them. A name has the same style in every chart of the page; the legend has those that are drawn.
Figure ratio_figure(const ReportInput& input, const Entries& entries, bool fastest_alone, const std::string& caption);

/// All trials of the journal in a cell, in order.
std::span<const Trial> recorded_trials(const ReportInput& input, const Cell& cell);

/// The last trial of each candidate of a cell that was timed; empty without a journal.
std::vector<const Trial*> timed_trials(const ReportInput& input, const Cell& cell);

/// "+3.1 %" of 0.031, "best" of 0.
std::string loss_text(double loss);

/// The paragraph of a section that needs the journal, where there is none.
std::string no_journal();

}  // namespace moetune
