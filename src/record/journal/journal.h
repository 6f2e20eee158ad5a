// The record of a tuning run as it happens: JSON lines on disk before and after each launch.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/system/file.h"
#include "record/measurement.h"
#include "record/table/table.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// First line of a journal: what the run was, so that --resume can refuse to mix two of them.
struct JournalHeader {
  std::vector<Cell> cells;
  DeviceInfo device;
  Json environment;   // of the backend; the part under "identity" must be equal to resume
  std::string space;  // its name
  std::string strategy;
  uint64_t seed = 0;
  std::vector<std::string> sweep = {};  // ids of all cells of the run, where these are a part; empty = no others
  Regime regime = Regime::burst;
};

/// Writes {"schema": "moetune.journal/1", "kind": "header", ...}, then {"kind": "started", "cell", "candidate"} before
/// and {"kind": "trial", ...} after each trial, and {"kind": "final", "cell", "took_us", "searched", "entry"} after
/// each final. Each line is on disk when its call returns.
class Journal {
 public:
  Journal() = default;  // writes nowhere

  /// Opens or makes the file without changing its content, and locks it while this lives. Throws Exit::request where
  /// another process has the lock.
  static Journal claim(const std::filesystem::path& path);
  bool empty() const { return file_.empty(); }
  std::filesystem::path keep_copy() const;  // copies the file; returns the name that copy_old chose
  void begin(const JournalHeader& header);  // replaces the content by this header
  void go_on();                             // appends from now on; removes a last line that was cut off
  void started(const std::string& cell_id, const Candidate& candidate);
  void finished(const std::string& cell_id, const Trial& trial);
  /// The final of the entry's cell is over, after `seconds`; `searched`: the strategy had come to its end, it was not
  /// cut off.
  void decided(const Entry& entry, const DeviceInfo& device, double seconds, bool searched);

 private:
  AppendFile file_;
};

/// What the journal of an earlier run says.
struct JournalContents {
  JournalHeader header;
  std::map<std::string, std::vector<Trial>> trials;  // by cell id, in order
  /// Candidates that were started and not finished, and how often. A candidate that ran when two runs ended is blamed
  /// for it; a single end may have been the user's.
  std::map<std::string, std::map<std::string, int>> unfinished;  // cell id -> candidate text -> times
  std::map<std::string, double> final_seconds = {};  // of each cell that was decided: what its last final took
  std::set<std::string> searched = {};               // cells whose strategy had come to its end
  std::map<std::string, Entry> decided = {};         // what the last final of a cell found; older journals lack it
};

/// visit(json, line) for each line of a journal but a last one that was cut off. Errors as of read_journal.
void each_line(const std::filesystem::path& path,
               const std::function<void(const JsonAt& json, const std::string& line)>& visit);

/// Reads a journal without a last line that was cut off. Anything else malformed is an Exit::request error that names
/// the line.
JournalContents read_journal(const std::filesystem::path& path, const Catalog& catalog);

/// Throws Exit::machine where the two runs don't compare (another device, other kernels), Exit::request where the
/// request differs (other cells, seed).
void require_resumable(const JournalHeader& before, const JournalHeader& now);

Json to_json(const JournalHeader& header);
JournalHeader journal_header_from_json(const JsonAt& json);

struct MergedJournal {
  JournalHeader header;
  std::string text;                    // header and records
  std::vector<std::string> conflicts;  // cells with different records in several journals
};

/// Combines the cells as `merge` does those of tables, and the records one journal after another. Of a cell with
/// records in several journals, those of one are taken: the first's, or the last's where `prefer` is "last".
/// Exit::machine where devices or environments don't compare; Exit::request where the journals cannot be read, or their
/// spaces, strategies or seeds differ.
MergedJournal merge_journals(const std::vector<std::filesystem::path>& paths, const std::string& prefer,
                             const Catalog& catalog);

}  // namespace moetune
