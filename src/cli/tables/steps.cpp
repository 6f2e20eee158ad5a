// Training steps as tables.
#include "cli/tables/steps.h"

#include <fmt/format.h>


namespace moetune {
namespace {

// "qwen3-30b-a3b training step, bf16: 128 experts, top 8, hidden 2048, intermediate 768", then what differs from plain.
std::string heading_of(const std::vector<CellTimes>& cells, const Step& step) {
  const Shape &up = cells[step.cells[2]].cell.shape, &down = cells[step.cells[5]].cell.shape;
  const Layer& layer = up.layer;
  std::string heading = fmt::format("{} training step, {}: {} experts, top {}, hidden {}, intermediate {}", layer.model,
                                    name(layer.dtype), layer.experts, layer.top_k, layer.k, down.layer.k * layer.tp);
  if (layer.tp > 1) heading += fmt::format(", tp {}", layer.tp);
  if (layer.ep > 1) heading += fmt::format(", ep {}", layer.ep);
  return heading + fusions_text(cells, step);
}

void add_rows(Grid& grid, const Step& step, const Cell& cell) {
  for (const ContenderTime& sum : step.sums) {
    add_row(grid, cell, sum_row(step, sum));
    if (&sum != step.sums.data()) grid.rows.back()[0] = grid.rows.back()[1] = "";  // told once
  }
}

}  // namespace

std::vector<HeadedTable> step_tables(const std::vector<CellTimes>& cells) {
  std::vector<HeadedTable> tables;
  for (const Step& step : training_steps(cells)) {
    const std::string heading = heading_of(cells, step);
    if (tables.empty() || tables.back().heading[0] != heading) {
      const std::string speedup = fmt::format("speedup of {}", step.sums[0].contender);
      tables.push_back({{heading}, cell_grid({{"contender"}, {"six GEMMs", true}, {speedup, true}})});
    }
    add_rows(tables.back().grid, step, cells[step.cells[0]].cell);
  }
  return tables;
}

}  // namespace moetune
