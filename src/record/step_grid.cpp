// Training steps as one table.
#include <fmt/format.h>

#include "record/step.h"
#include "record/time_text.h"

namespace moetune {

std::string fusions_text(const std::vector<CellTimes>& cells, const Step& step) {
  // Those of dw, and beside them what dx alone has.
  Shape up = cells[step.cells[2]].cell.shape, down = cells[step.cells[5]].cell.shape;
  up.fusion.sum_slots = cells[step.cells[1]].cell.shape.fusion.sum_slots;
  down.fusion.weight_gradient = cells[step.cells[4]].cell.shape.fusion.weight_gradient;
  std::string told;
  for (const Shape* shape : {&up, &down})
    if (shape->fusion != Fusion{}) told += fmt::format(", {} {}", name(shape->layer.projection), text(shape->fusion));
  return told;
}

std::vector<std::string> sum_row(const Step& step, const ContenderTime& sum) {
  const bool first = &sum == &step.sums[0];
  return {sum.contender, time_text(sum.time),
          first                     ? ""
          : !step.untrusted.empty() ? "noisy"
                                    : ratio_text(step_speedup(step, sum))};
}

Grid steps_grid(const std::vector<CellTimes>& cells) {
  Grid grid{{{"training step"}, {"contender"}, {"six GEMMs", true}, {"speed-up of the winners", true}}, {}};
  for (const Step& step : training_steps(cells)) {
    const Cell& cell = cells[step.cells[0]].cell;
    const Layer& layer = cell.shape.layer;
    std::string place =
        fmt::format("{} {}, {} tokens, {}{}{}", layer.model, name(layer.dtype), cell.tokens, text(cell.routing),
                    cell.seed == 0 ? "" : fmt::format(", seed {}", cell.seed), fusions_text(cells, step));
    for (const ContenderTime& sum : step.sums) {
      grid.rows.push_back(sum_row(step, sum));
      grid.rows.back().insert(grid.rows.back().begin(), place);
      place.clear();  // told once
    }
  }
  return grid;
}

}  // namespace moetune
