// Measures the times that robust choices are made from: the winners of a layer's cells in each other's cells.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "record/table/table.h"
#include "tune/rounds.h"

namespace moetune {

struct ContestRequest {
  Rule rule = Rule::worst;
  double bucket_loss = 0;  // token counts are merged while the regret stays within it; 0 = none is merged
  int rounds = 11;
  int looks = 1;    // parts of a cell's rounds, each over operands made anew
  double wait = 0;  // seconds a cell may wait while other programs use the processors
  SampleRequest sample = {};
  Clock::time_point end = Clock::time_point::max();  // no cell begins later, and one under way ends
  /// Takes the place of pick_contenders; then single cells have a contest too.
  std::function<std::vector<Candidate>(const Entries&)> contenders = {};
};

/// Is called while measuring.
struct ContestListener {
  std::function<void(const Cell&, size_t contenders)> begins = {};  // a cell
  std::function<void(const std::string&)> note = {};                // a warning that says what to do
};

/// Whether there is anything to choose for these cells: two of one shape have equal tokens, or any tokens where token
/// counts may be merged.
bool has_contest(const std::vector<Cell>& cells, double bucket_loss);

/// The contenders of cells: all their winners, then the most frequent of their defaults and ties, while there are fewer
/// than eight.
std::vector<Candidate> pick_contenders(const Entries& entries);

/// The rounds of a request in its looks; `reload` makes operands anew before each but the first. A contender that fails
/// twice leaves the list, and `drop` gets it with the reason. Nothing where `stop` or the end of the time leaves too
/// few rounds for an interval.
Rounds measure_looks(Backend& backend, std::vector<Contender>& contenders, const ContestRequest& request,
                     const std::atomic<bool>& stop, const std::function<void()>& reload,
                     const std::function<void(const Contender&, const std::string&)>& drop);

/// Verifies and times the contenders of each shape of the table in each of its cells, in interleaved rounds, and
/// chooses; shapes whose cells leave nothing to choose get no choices. Where no token counts are merged, the cells of
/// one count have contenders of their own. A contender that fails, or whose result is wrong, in a cell is left out of
/// that cell's choice; a cell that does not fit into memory is left out itself. Both are noted. Nothing for shapes that
/// `stop` or the end of the time cuts short. Faults of the machine throw.
std::vector<RobustChoice> measure_choices(const TunedTable& table, Backend& backend, const ContestRequest& request,
                                          const ContestListener& listener, const std::atomic<bool>& stop);

}  // namespace moetune
