// Training steps as one table.
#include <fmt/format.h>

#include "table/step.h"
#include "table/time_text.h"

namespace moetune {
namespace {

std::string fusions(const Shape& up, const Shape& down) {
  std::string told;
  for (const Shape* shape : {&up, &down})
    if (shape->fusion != Fusion{}) told += fmt::format(", {} {}", name(shape->layer.projection), text(shape->fusion));
  return told;
}

}  // namespace

Grid steps_grid(const std::vector<CellTimes>& cells) {
  Grid grid{{{"training step"}, {"contender"}, {"six GEMMs", true}, {"speed-up of the winners", true}}, {}};
  for (const Step& step : training_steps(cells)) {
    const Cell& cell = cells[step.cells[0]].cell;
    const Shape &up = cells[step.cells[2]].cell.shape, &down = cells[step.cells[5]].cell.shape;
    std::string place = fmt::format("{} {}, {} tokens, {}{}", up.layer.model, name(up.layer.dtype), cell.tokens,
                                    text(cell.routing), fusions(up, down));
    for (const ContenderTime& sum : step.sums) {
      Measurement time;
      time.seconds = sum.seconds, time.interval = sum.interval;
      const StepSpeedup speedup = step_speedup(step, sum);
      const bool ours = &sum == &step.sums[0];
      grid.rows.push_back({place, sum.contender, time_text(time),
                           ours                      ? ""
                           : !step.untrusted.empty() ? "noisy"
                                                     : ratio_text(speedup.ratio, speedup.interval)});
      place.clear();  // told once
    }
  }
  return grid;
}

}  // namespace moetune
