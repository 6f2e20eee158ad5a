// What is known of a cell while it is tuned, and what earlier runs and lost devices left of it. For this folder only.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "record/measurement.h"
#include "tune/run.h"
#include "tune/search/strategy.h"

namespace moetune {

struct CellRun {
  const Cell* cell = nullptr;
  std::string id;
  Problem problem;
  std::shared_ptr<const Enumeration> listed;  // where the strategy goes through a list; else null
  std::shared_ptr<const Domain> domain;       // null where there is a list
  Candidate fallback;                         // the default
  std::unique_ptr<Strategy> strategy;
  int64_t planned = 0;                 // trials at most
  std::deque<Trial> trials;            // a deque, because events hold pointers to its elements
  std::map<Candidate, size_t> places;  // in trials
  std::vector<size_t> order =
      {};  // indices into trials, as they were recorded; more blocks of a trial add its index again
  std::optional<Candidate> under_way = {};  // started and not finished
  std::vector<Trial> again = {};            // to be made again: a device may have caused their faults
  const Trial* best = nullptr;
  Clock::time_point end = Clock::time_point::max();
  bool complete = true;
  bool cut = false;                                   // the strategy asked for more candidates than are planned
  std::optional<std::vector<Candidate>> coming = {};  // the first candidates of the next cell, once computed
  Clock::time_point begin = Clock::now();
};

/// Adds a trial, or replaces the one of the same candidate that had fewer blocks, and gives it to the strategy.
void keep(CellRun& state, Trial trial);

/// Takes over trials of the resumed run, and of lost devices, that this run would repeat. Of a candidate's trials the
/// last counts: it was tried again. The faults that came last, before the cell was decided, may be those of a lost
/// device: they are not taken over, but tried again.
void take_over_trials(const Run& run, CellRun& state);

/// Whether the resumed run has searched this cell to the end, by the same strategy over the same space.
bool is_searched(const Run& run, const CellRun& state);

/// Leaves the cell to another device.
void leave(const Run& run, const CellRun& state);

/// Whether two earlier runs ended while this candidate ran: it is then blamed for that.
bool is_culprit(const Run& run, const CellRun& state, const Candidate& candidate);

}  // namespace moetune
