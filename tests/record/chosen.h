// Contests of a small layer and tables with the choices made from them.
#pragma once
#include <cmath>
#include <vector>

#include "record/robust_choice.h"
#include "record/sample.h"

namespace moetune::sample {

inline Estimate cell_time(double us) { return {us * 1e-6, 0.99 * us * 1e-6, 1.01 * us * 1e-6}; }

/// `us[contender][cell]`; NaN: no time.
inline Contest contest(std::vector<Cell> cells, std::vector<Candidate> contenders,
                       const std::vector<std::vector<double>>& us) {
  Contest result{.cells = std::move(cells), .contenders = std::move(contenders), .times = {}, .left_out = {}};
  for (const std::vector<double>& row : us) {
    result.times.emplace_back();
    for (const double time : row)
      result.times.back().push_back(std::isnan(time) ? std::nullopt : std::optional(cell_time(time)));
  }
  return result;
}

/// Two routings of 16 and of 64 tokens. mma(16) wins at 16, mma(64) at 64, mma(32) is second everywhere.
inline Contest two_counts(const Layer& layer = small_up()) {
  return contest({cell(layer, 16), cell(layer, 16, "zipf:1"), cell(layer, 64), cell(layer, 64, "zipf:1")},
                 {mma(16), mma(32), mma(64)}, {{100, 100, 260, 210}, {101, 104, 201, 208}, {150, 120, 200, 200}});
}

/// Entries of the contest's cells, whose winners are the fastest there, and the choices of the rule and loss.
inline TunedTable chosen_table(const Contest& of = two_counts(), Rule rule = Rule::worst, double loss = 0) {
  TunedTable result = table();
  for (size_t i = 0; i < of.cells.size(); ++i) {
    size_t best = 0;
    for (size_t who = 1; who < of.contenders.size(); ++who)
      if (of.times[who][i]->value < of.times[best][i]->value) best = who;
    result.entries.push_back(entry(of.cells[i], of.contenders[best], of.times[best][i]->value * 1e6));
  }
  result.choices = robust_choices(of, rule, loss);
  return result;
}

}  // namespace moetune::sample
