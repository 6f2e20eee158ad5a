// Training steps as sections.
#include "cli/steps.h"

#include <fmt/format.h>

#include "cli/wording.h"

namespace moetune {
namespace {

// "qwen3-30b-a3b training step, bf16: 128 experts, top 8, hidden 2048, intermediate 768", then what differs from plain.
std::string heading_of(const std::vector<CellTimes>& cells, const Step& step) {
  // The heading tells the fusions of dw alone and of dx alone beside those that they share.
  Shape up = cells[step.cells[2]].cell.shape, down = cells[step.cells[5]].cell.shape;
  up.fusion.sum_slots = cells[step.cells[1]].cell.shape.fusion.sum_slots;
  down.fusion.weight_gradient = cells[step.cells[4]].cell.shape.fusion.weight_gradient;
  const Layer& layer = up.layer;
  std::string heading = fmt::format("{} training step, {}: {} experts, top {}, hidden {}, intermediate {}", layer.model,
                                    name(layer.dtype), layer.experts, layer.top_k, layer.k, down.layer.k * layer.tp);
  if (layer.tp > 1) heading += fmt::format(", tp {}", layer.tp);
  if (layer.ep > 1) heading += fmt::format(", ep {}", layer.ep);
  for (const Shape* shape : {&up, &down})
    if (shape->fusion != Fusion{})
      heading += fmt::format(", {} {}", name(shape->layer.projection), text(shape->fusion));
  return heading;
}

void add_rows(Grid& grid, const Step& step, const Cell& cell) {
  std::vector<std::string> place = cell_row(cell);
  for (const ContenderTime& sum : step.sums) {
    std::vector<std::string> row = place;
    place.assign(place.size(), "");  // told once
    Measurement time;
    time.seconds = sum.seconds, time.interval = sum.interval;
    const StepSpeedup speedup = step_speedup(step, sum);
    row.push_back(sum.contender);
    row.push_back(time_text(time));
    row.push_back(&sum == &step.sums[0]     ? ""
                  : !step.untrusted.empty() ? "noisy"
                                            : ratio_text(speedup.ratio, speedup.interval));
    grid.rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Section> step_sections(const std::vector<CellTimes>& cells) {
  std::vector<Section> sections;
  for (const Step& step : training_steps(cells)) {
    const std::string heading = heading_of(cells, step);
    if (sections.empty() || sections.back().heading[0] != heading) {
      Grid grid{cell_columns(), {}};
      grid.columns.insert(
          grid.columns.end(),
          {{"contender"}, {"six GEMMs", true}, {fmt::format("speedup of {}", step.sums[0].contender), true}});
      sections.push_back({{heading}, std::move(grid)});
    }
    add_rows(sections.back().grid, step, cells[step.cells[0]].cell);
  }
  return sections;
}

}  // namespace moetune
