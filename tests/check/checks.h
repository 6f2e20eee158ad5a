// Tables to check, and a machine that became slower.
#pragma once
#include <utility>
#include <vector>

#include "tune/tuning.h"

namespace moetune {

inline TunedTable tuned(fake::Script script = {}, std::vector<Cell> cells = {fake::small_cell()}) {
  fake::Tuning tuning(std::move(script));
  tuning.request.cells = std::move(cells);
  return tuning.run();
}

/// The same code, but every candidate takes `factor` times as long.
inline fake::Script slowed(double factor, fake::Script script = {}) {
  script.seconds = [factor](const Candidate& c) { return factor * fake::formula(c); };
  return script;
}

}  // namespace moetune
