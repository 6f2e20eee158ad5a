// What the router did in each cell, and what it costs.
#include <fmt/format.h>

#include <bit>

#include "report/chart.h"
#include "report/report_content.h"

namespace moetune {
namespace {

// Experts by their rows: none, 1, 2 to 3, 4 to 7, ...
struct RowClass {
  int64_t low = 0, high = 0, experts = 0;
};

std::vector<RowClass> row_classes(const std::vector<int32_t>& m_sizes) {
  std::vector<RowClass> classes;
  for (const int32_t rows : m_sizes) {
    const auto index = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(rows)));
    while (classes.size() <= index) {
      const int64_t low = classes.empty() ? 0 : int64_t{1} << (classes.size() - 1);
      classes.push_back({low, std::max(int64_t{0}, 2 * low - 1), 0});
    }
    ++classes[index].experts;
  }
  return classes;
}

std::string label_of(const RowClass& rows) {
  return rows.low == rows.high ? std::to_string(rows.low) : fmt::format("{}-{}", rows.low, rows.high);
}

// "2+" for 2 to 3 and "4k+" for 4096 to 8191: short enough for many bars.
std::string bar_label(const RowClass& rows) {
  if (rows.low == rows.high) return std::to_string(rows.low);
  return rows.low < 1024 ? fmt::format("{}+", rows.low) : fmt::format("{}k+", rows.low / 1024);
}

// "0: 43, 1: 46, 2-3: 39".
std::string told(const std::vector<RowClass>& classes) {
  std::string line;
  for (const RowClass& rows : classes)
    if (rows.experts > 0) line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", label_of(rows), rows.experts);
  return line;
}

Figure histogram(const Entry& entry) {
  std::vector<Bar> bars;
  for (const RowClass& rows : row_classes(entry.m_sizes))
    bars.push_back({bar_label(rows), static_cast<double>(rows.experts),
                    fmt::format("{} experts with {} rows", rows.experts, label_of(rows))});
  while (bars.size() > 1 && bars.front().value == 0) bars.erase(bars.begin());
  const Layer& layer = entry.cell.shape.layer;
  const std::string caption = fmt::format("{} experts, top {}: {}", layer.experts, layer.top_k, cell_title(entry.cell));
  return {caption, svg_bars("Experts by their rows, " + caption,
                            "rows of an expert (16+ is 16 to 31); bars count experts", bars)};
}

}  // namespace

ReportSection routing_section(const ReportInput& input) {
  ReportPart part{
      .paragraphs = {"Occupancy is the share of the rows of all tiles of the winner that an expert really has. "
                     "Loss is how much longer the winner takes than the winner for balanced rows."},
      .grid = {{{"cell"},
                {"rows", true},
                {"active experts", true},
                {"most rows", true},
                {"max/mean", true},
                {"CV", true},
                {"effective experts", true},
                {"occupancy", true},
                {"loss", true},
                {"experts by rows"}},
               {}}};
  std::vector<std::vector<int32_t>> drawn;  // projections of a layer share their rows
  for (const Entry& entry : input.table->entries) {
    const RoutingFigures& f = entry.figures;
    const auto loss = loss_to_balanced(*input.table, entry);
    part.grid.rows.push_back({id(entry.cell), std::to_string(f.rows),
                              fmt::format("{} of {}", f.active_experts, entry.m_sizes.size()),
                              std::to_string(f.max_rows), fmt::format("{:.2f}", f.max_over_mean),
                              fmt::format("{:.2f}", f.cv), fmt::format("{:.1f}", f.effective_experts),
                              entry.skipped.empty() ? fmt::format("{:.1f} %", 100 * entry.occupancy) : "",
                              loss ? fmt::format("{:+.1f} %", 100 * *loss) : "", told(row_classes(entry.m_sizes))});
    if (std::ranges::find(drawn, entry.m_sizes) != drawn.end()) continue;
    drawn.push_back(entry.m_sizes);
    part.figures.push_back(histogram(entry));
  }
  return {"Routing", {part}};
}

}  // namespace moetune
