// Prints the progress of a tuning run on standard error: one line that moves on a terminal; elsewhere a line per cell
// and every 30 seconds.
#pragma once
#include <chrono>
#include <map>
#include <string>

#include "cli/text/console.h"
#include "tune/tuner.h"

namespace moetune {

/// Where a run stands. Trials taken over from a journal cost no time and are not `fresh`.
struct RunState {
  size_t cell = 0, cells = 0;     // 0 is the first
  std::string name;               // of the cell
  int64_t done = 0, planned = 0;  // trials of this cell
  int64_t planned_so_far = 0;     // of the cells before and this one
  int64_t fresh = 0;              // measured now, all cells
  double elapsed = 0;             // seconds
  double budget = 0;              // 0 = none
  double best = 0;                // seconds; 0 = none yet
};

/// Seconds to go at the pace so far, where cells to come take as long as those begun on average; NaN = not known yet.
double remaining_seconds(const RunState& state);

/// "[2/6] qwen3…zipf:1  37/120  best 12.3 µs  ETA 2 min 10 s" in at most `columns` columns.
std::string progress_line(const RunState& state, int columns);

/// What became of a cell, in a line.
std::string cell_line(const Entry& entry, const DeviceInfo& device, size_t cell, size_t cells);

/// Listens to a run. It has no copies, which would count separately: pass it by reference.
class Progress {
 public:
  Progress(const Terminal& terminal, const DeviceInfo& device, bool quiet, double budget);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on(const Event& event);
  /// Takes the moving line away, before something else is printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(bool now);

  Terminal terminal_;
  DeviceInfo device_;
  bool quiet_;
  // Cells under way, by device; the line counts them together.
  struct UnderWay {
    size_t cell = 0;
    int64_t done = 0, planned = 0;
  };
  RunState state_;
  std::map<size_t, UnderWay> under_way_;
  Clock::time_point begin_ = Clock::now(), drawn_ = begin_;
  bool visible_ = false;
};

}  // namespace moetune
