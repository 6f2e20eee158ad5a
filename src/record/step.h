// Training steps among cells: the six grouped GEMMs of a layer, and the sums of their times. Nothing here measures.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "record/table/table.h"

namespace moetune {

/// A contender's time in one cell, or its sum over the six cells of a step; seconds.
struct ContenderTime {
  std::string contender;  // "winners", "default", "cublas-loop", ...
  Estimate time = {};
  // The winner's over this one, where both ran in the same rounds. Of a sum: the mean of the six, each weighted by the
  // winner's time, and of their intervals.
  std::optional<Estimate> of_winner = {};
};

struct CellTimes {
  Cell cell;
  std::vector<ContenderTime> times = {};
  std::string untrusted = {};  // why the cell's times are too noisy to judge by, as a sentence; or empty
};

struct Step {
  std::array<size_t, 6> cells;  // indices: fwd, dx, dw of up, then of down
  // Of the contenders with a time in all six: the winners, the default, then the others in the order of the first cell.
  std::vector<ContenderTime> sums = {};
  std::string untrusted = {};  // the first such cell's id and sentence, or empty
};

/// The winner's time as "winners", then its rivals'; no times where there is no winner.
CellTimes cell_times(const Entry& entry);
std::vector<CellTimes> cell_times(const TunedTable& table);

/// The steps whose six cells are there and which have a sum, in the order of the dw cells of up. The six have the same
/// model, sharding, dtype, tokens, routing and seed; within a projection they have the same permutations and weights,
/// and both dw have the same accumulate and fp32_dw; each combination of weight_gradient and gates of dx, and of up
/// sum_slots, makes a separate step. Where dx and dw of down sum slots, fwd need not. Plain cells of up go with plain
/// cells of down, and permuted ones with permuted ones; where such a partner is missing on both sides, a plain
/// projection goes with a permuted one.
std::vector<Step> training_steps(const std::vector<CellTimes>& cells);

/// The first step that cell `i` belongs to, or null.
const Step* step_of(const std::vector<Step>& steps, size_t i);

/// How much faster the step's first contender is than the one of `sum`: of_winner where it is the winners', else the
/// ratio of the sums, and its interval from theirs.
Estimate step_speedup(const Step& step, const ContenderTime& sum);

/// The contender's sum, or null.
const ContenderTime* find_sum(const Step& step, const std::string& contender);

/// One table per layer with training steps. Each step has a row per contender with the sum of its six times, and how
/// much faster the first contender is: the ratio of the sums, or "noisy" where a cell cannot be trusted.
std::vector<HeadedTable> step_tables(const std::vector<CellTimes>& cells);

/// An object a training step: ids of the cells, and the sums in microseconds, each with its
/// step_speedup.
Json steps_json(const std::vector<CellTimes>& cells);

}  // namespace moetune
