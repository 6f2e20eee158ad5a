// Runs of `check` over time (moetune.history/1): a file of JSON lines that grows by one a run, and where times changed
// in it. Nothing here measures.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/stats.h"

namespace moetune {

/// What one run says of a kernel in a cell.
struct HistoryPoint {
  std::string name;          // the cell's id, and which kernel
  std::string finding;       // as `check` names it
  Estimate time;             // seconds
  std::string control = {};  // the baseline in the same rounds; empty = none
  double control_seconds = 0;
};

struct HistoryRun {
  std::string date, commit, device, regime;  // commit: as given, or empty
  std::vector<HistoryPoint> points = {};     // of cells that were measured
};

struct History {
  std::vector<HistoryRun> runs = {};
  std::vector<Error> damaged = {};  // a line each that cannot be read and is left out
};

/// Reads a history without a last line that was cut off. Throws where no line of the file is a run.
History read_history(const std::string& file);

/// Adds a line to the file, which may not be there yet: readers see whole lines only. Errors as of write_atomic.
void append_history(const std::string& file, const HistoryRun& run);

/// Times from one change to the next. `time` is their median with its noise band: two standard deviations of a run.
struct HistoryLevel {
  size_t first = 0;  // place in the series
  Estimate time;
};

/// A kernel's times on the device and in the regime of the last run. Where every run has the same control, each time is
/// scaled by how much longer the control took than its median: a slow machine is no change. Untrusted times are left
/// out.
struct HistorySeries {
  std::string name;
  std::vector<Estimate> times = {};
  std::vector<const HistoryRun*> runs = {};  // a run for each time
  std::vector<HistoryLevel> levels = {};     // one or more; each begins with a change but the first
};

/// In the order of the first appearance. The runs must outlive them. Changes are those of change_points.
std::vector<HistorySeries> series_of(const std::vector<HistoryRun>& runs);

/// "+5.1 % since 2026-11-27T10:00:00, commit 1a2b3c4": the change that a level begins with, `level` > 0.
std::string change_text(const HistorySeries& series, size_t level);

}  // namespace moetune
