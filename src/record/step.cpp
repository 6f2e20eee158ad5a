// Which cells make a step, and steps as one table.
#include "record/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "record/layer.h"

namespace moetune {
namespace {

struct Half {
  std::array<size_t, 3> cells;  // fwd, dx, dw
  Cell dw;
  bool permutes() const { return dw.shape.fusion.permute_x || dw.shape.fusion.permute_y; }
};

// What dx alone may have, and fwd that stores H for it. dx and dw of down sum slots both, or neither.
void copy_parts_of_dx(Fusion& to, const Fusion& from) {
  if (!to.permute_y) to.sum_slots = from.sum_slots;
  to.weight_gradient = from.weight_gradient;
  to.activation = from.activation, to.interleaved = from.interleaved;
}

std::vector<Half> halves_of(const std::vector<CellTimes>& cells, Projection projection) {
  // What the three cells of a half have in common.
  const auto key = [](Cell cell) {
    cell.shape.op = Op::fwd;
    cell.shape.fusion.accumulate = cell.shape.fusion.fp32_dw = false;
    return id(cell);
  };
  std::map<std::string, size_t> forward;
  std::map<std::string, std::map<std::string, size_t>> backward;  // dx, each once
  for (size_t i = 0; i < cells.size(); ++i) {
    Cell cell = cells[i].cell;
    if (cell.shape.fusion.store_h) copy_parts_of_dx(cell.shape.fusion, {}), cell.shape.fusion.store_h = false;
    if (cell.shape.op == Op::fwd) forward.emplace(key(cell), i);
    if (cell.shape.op != Op::dx) continue;
    copy_parts_of_dx(cell.shape.fusion, {});
    backward[key(cell)].emplace(id(cells[i].cell), i);
  }
  std::vector<Half> halves;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i].cell;
    auto fwd = forward.find(key(cell));
    if (fwd == forward.end() && cell.shape.fusion.sum_slots) {  // what adds the slots of Y may be another
      Cell by_slot = cell;
      by_slot.shape.fusion.sum_slots = false;
      fwd = forward.find(key(by_slot));
    }
    if (cell.shape.op != Op::dw || cell.shape.layer.projection != projection || fwd == forward.end()) continue;
    for (const auto& [name, dx] : backward[key(cell)]) halves.push_back({{fwd->second, dx, i}, cell});
  }
  return halves;
}

// Whether the two projections are of one layer and see the same rows; `down` may permute otherwise.
bool fit(const Half& up, const Half& down) {
  const Layer &wide = up.dw.shape.layer, &narrow = down.dw.shape.layer;
  if (wide.k != narrow.n || (wide.n != 2 * narrow.k && wide.n != narrow.k)) return false;
  Cell expected = up.dw;
  expected.shape.layer.projection = Projection::down;
  expected.shape.layer.n = narrow.n, expected.shape.layer.k = narrow.k;
  const Fusion& fusion = down.dw.shape.fusion;
  expected.shape.fusion.permute_x = fusion.permute_x, expected.shape.fusion.permute_y = fusion.permute_y;
  expected.shape.fusion.topk_weights = fusion.topk_weights, expected.shape.fusion.sum_slots = fusion.sum_slots;
  return expected == down.dw;
}

const ContenderTime* find(const std::vector<ContenderTime>& times, const std::string& contender) {
  const auto time = std::ranges::find(times, contender, &ContenderTime::contender);
  return time == times.end() ? nullptr : &*time;
}

// The mean of the six, each weighted by the winner's time; nothing where one has no winner that ran beside it.
std::optional<Estimate> speedup_of_winners(const std::array<size_t, 6>& six, const std::vector<CellTimes>& cells,
                                           const std::string& contender) {
  Estimate mean;
  double seconds = 0;
  for (const size_t i : six) {
    const ContenderTime *winner = find(cells[i].times, "winners"), *time = find(cells[i].times, contender);
    if (!winner || !time || !time->of_winner) return std::nullopt;
    mean += winner->time.value * *time->of_winner;
    seconds += winner->time.value;
  }
  return 1 / seconds * mean;
}

std::vector<ContenderTime> sums_of(const std::array<size_t, 6>& six, const std::vector<CellTimes>& cells) {
  std::vector<ContenderTime> sums;
  for (const ContenderTime& first : cells[six[0]].times) {
    ContenderTime sum{.contender = first.contender};
    const bool whole = std::ranges::all_of(six, [&](size_t i) {
      const ContenderTime* time = find(cells[i].times, first.contender);
      if (!time) return false;
      sum.time += time->time;
      return true;
    });
    if (!whole) continue;
    sum.of_winner = speedup_of_winners(six, cells, first.contender);
    sums.push_back(std::move(sum));
  }
  const auto rank = [](const ContenderTime& sum) {
    return sum.contender == "winners" ? 0 : sum.contender == "default" ? 1 : 2;
  };
  std::ranges::stable_sort(sums, {}, rank);
  return sums;
}

Json to_json(const Step& step, const std::vector<CellTimes>& cells) {
  const auto sum_json = [&](const ContenderTime& sum) {
    Json json = {{"contender", sum.contender},
                 {"sum_us", rounded(sum.time.value * 1e6)},
                 {"low_us", rounded(sum.time.low * 1e6)},
                 {"high_us", rounded(sum.time.high * 1e6)}};
    json.update(estimate_json("speedup", step_speedup(step, sum), 4));
    return json;
  };
  Json json = {{"cells", json_list(step.cells, [&](size_t i) { return id(cells[i].cell); })},
               {"sums", json_list(step.sums, sum_json)}};
  if (!step.untrusted.empty()) json["untrusted"] = step.untrusted;
  return json;
}

// What differs from plain in a step's projections, each with a comma before it: ", up permute_x+sum_slots".
std::string fusions_text(const std::vector<CellTimes>& cells, const Step& step) {
  // Those of dw, and beside them what dx alone has.
  Shape up = cells[step.cells[2]].cell.shape, down = cells[step.cells[5]].cell.shape;
  copy_parts_of_dx(up.fusion, cells[step.cells[1]].cell.shape.fusion);
  copy_parts_of_dx(down.fusion, cells[step.cells[4]].cell.shape.fusion);
  std::string words;
  for (const Shape* shape : {&up, &down})
    if (shape->fusion != Fusion{}) words += fmt::format(", {} {}", name(shape->layer.projection), text(shape->fusion));
  return words;
}

}  // namespace

CellTimes cell_times(const Entry& entry) {
  CellTimes cell{.cell = entry.cell, .untrusted = distrust(entry)};
  if (!entry.skipped.empty()) return cell;
  cell.times.push_back({"winners", entry.measurement.time});
  for (const Rival& rival : entry.rivals) {
    cell.times.push_back({rival.name, rival.measurement.time});
    if (rival.ratio.value > 0 && rival.ratio.low > 0) cell.times.back().of_winner = 1 / rival.ratio;
  }
  return cell;
}

std::vector<CellTimes> cell_times(const TunedTable& table) {
  return mapped(table.entries, [](const Entry& entry) { return cell_times(entry); });
}

std::vector<Step> training_steps(const std::vector<CellTimes>& cells) {
  const std::vector<Half> ups = halves_of(cells, Projection::up), downs = halves_of(cells, Projection::down);
  const auto has_alike = [](const Half& half, const std::vector<Half>& others, auto fit_other) {
    return std::ranges::any_of(
        others, [&](const Half& other) { return other.permutes() == half.permutes() && fit_other(other); });
  };
  std::vector<Step> steps;
  for (const Half& up : ups)
    for (const Half& down : downs) {
      if (!fit(up, down)) continue;
      if (up.permutes() != down.permutes() &&
          (has_alike(up, downs, [&](const Half& other) { return fit(up, other); }) ||
           has_alike(down, ups, [&](const Half& other) { return fit(other, down); })))
        continue;
      Step step{.cells = {up.cells[0], up.cells[1], up.cells[2], down.cells[0], down.cells[1], down.cells[2]}};
      step.sums = sums_of(step.cells, cells);
      for (const size_t i : step.cells)
        if (step.untrusted.empty() && !cells[i].untrusted.empty())
          step.untrusted = fmt::format("{}: {}", id(cells[i].cell), cells[i].untrusted);
      if (!step.sums.empty()) steps.push_back(std::move(step));
    }
  return steps;
}

const Step* step_of(const std::vector<Step>& steps, size_t i) {
  const auto step = std::ranges::find_if(steps, [&](const Step& one) { return contains(one.cells, i); });
  return step == steps.end() ? nullptr : &*step;
}

Estimate step_speedup(const Step& step, const ContenderTime& sum) {
  const ContenderTime& first = step.sums.at(0);
  if (sum.contender == first.contender) return {1, 1, 1};
  if (sum.of_winner && first.contender == "winners") return *sum.of_winner;
  return sum.time / first.time;
}

const ContenderTime* find_sum(const Step& step, const std::string& contender) { return find(step.sums, contender); }

Json steps_json(const std::vector<CellTimes>& cells) {
  return json_list(training_steps(cells), [&](const Step& step) { return to_json(step, cells); });
}

std::vector<HeadedTable> step_tables(const std::vector<CellTimes>& cells) {
  std::vector<HeadedTable> tables;
  for (const Step& step : training_steps(cells)) {
    const auto shape = [&](size_t part) -> const Shape& { return cells[step.cells[part]].cell.shape; };
    const std::string heading = title(shape(2), shape(5), "training step") + fusions_text(cells, step);
    if (tables.empty() || tables.back().heading[0] != heading) {
      const std::string speedup = fmt::format("speedup of {}", step.sums[0].contender);
      tables.push_back({{heading}, cell_grid({{"contender"}, {"six GEMMs", true}, {speedup, true}})});
    }
    const auto row = [&](const ContenderTime& sum) -> std::vector<std::string> {
      return {sum.contender, time_text(sum.time),
              &sum == &step.sums[0]     ? ""
              : !step.untrusted.empty() ? "noisy"
                                        : ratio_text(step_speedup(step, sum))};
    };
    add_rows(tables.back().grid, cells[step.cells[0]].cell, mapped(step.sums, row));
  }
  return tables;
}

}  // namespace moetune
