// The tuning loop: prune, compile, verify, measure, record. It emits events and never prints.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "record/journal/journal.h"
#include "record/table/table.h"
#include "variant/space/space.h"

namespace moetune {

struct TuneRequest {
  std::vector<Cell> cells;
  SearchSpace space;
  std::string strategy = "auto";
  int64_t max_candidates = 0;  // a cell; 0 = no limit
  double time_budget = 0;      // seconds for the whole run, divided among the cells that remain; 0 = no limit
  uint64_t seed = 0;
  int blocks = 5;  // timed blocks of a trial, where the strategy doesn't race
  double block_seconds = 2e-3;
  int final_rounds = 11;             // of winner, default and baselines
  int final_looks = 1;               // parts of the rounds, each over operands made anew
  bool final_stretch = true;         // up to three times as many rounds while the winner's ratio is uncertain
  std::optional<double> final_wait;  // seconds that a final may wait for a quiet machine; empty = as long as its search
  Regime regime = Regime::burst;
  std::vector<Entry> warm_start = {};  // of other runs, whose winners a search may begin with
  Json tool;                           // for the table
};

struct CellStarted {
  size_t index, count;  // which of how many cells
  const Cell* cell;
  int64_t planned;    // trials at most
  int64_t resumed;    // of those, known from the journal
  size_t device = 0;  // which of those that share the run
};
struct TrialStarted {
  const Candidate* candidate;
};
struct TrialFinished {
  const Trial* trial;
  int64_t done, planned;
  const Trial* best;  // so far; null
  size_t device = 0;
};
struct CellFinished {
  const Entry* entry;
  size_t device = 0;
};
struct Note {
  std::string text;
};  // a warning that says what to do
using Event = std::variant<CellStarted, TrialStarted, TrialFinished, CellFinished, Note>;
using Listener = std::function<void(const Event&)>;

/// Whether an entry has no winner because the machine's memory cannot hold the problem.
bool lacks_memory(const Entry& entry);

/// The entry of an earlier run that this run keeps, because it would search no further. Null if that search was cut
/// short, or if there may be more candidates now.
const Entry* decided_entry(const TuneRequest& request, const JournalContents& before, const Cell& cell);

/// How many candidates of the space the run draws at random for each cell, by its seed; 0 where it lists them all.
int64_t drawn_candidates(const TuneRequest& request);

/// Tunes every cell but those of decided_entry. Entries of earlier runs stay in the table until their cell is decided
/// again; cells without one come first. `after_cell` (may be empty) gets the table so far, for writing: before the
/// first cell, where it holds entries of earlier runs, and after each cell. Stops early, with the table so far, when
/// `stop` becomes true or the budget is spent. Faults of candidates are trials; faults of the machine throw. The
/// default candidate is always tried first; the winner is never one that the default beats.
///
/// Several devices are of one model, or workers that take turns on one, each in its own thread: whichever is free
/// takes the next cell. Entries come in the order of the request's cells, whoever tuned them; events, journal and
/// `after_cell` are called by one thread at a time. A device whose worker cannot go on (an Error of Exit::machine) is
/// retired with a note and another goes on with its cell, with the trials it has made; when the last one is lost, its
/// error is thrown. A worker that finds no memory beside others on its device leaves its cell to them.
TunedTable tune(const TuneRequest& request, const std::vector<Backend*>& devices, Journal& journal,
                const JournalContents& before, const Listener& listen, const std::atomic<bool>& stop,
                const std::function<void(const TunedTable&)>& after_cell);

}  // namespace moetune
