// A tuned table: for each cell the winner, how sure it is, and what it was compared with.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "table/measurement.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// A rival in the final interleaved rounds, scored by the paired ratio winner time / its time, round by round.
struct Rival {
  std::string name;     // "default", "cublas-loop", ...
  Candidate candidate;  // for "default"
  Measurement measurement;
  double ratio = 0;         // median over rounds of winner seconds / rival seconds: below 1, the winner is faster
  Interval ratio_interval;  // 95 %, bootstrap over rounds
};

struct Entry {
  Cell cell;
  std::vector<int32_t> m_sizes;  // the realised rows
  RoutingFigures figures;
  double occupancy = 0;         // tile occupancy at the winner's block_m
  double flops = 0, bytes = 0;  // of the problem
  Candidate candidate;          // the winner
  Measurement measurement;
  Verdict verdict;
  std::vector<Rival> rivals;        // default first, then baselines
  std::vector<Candidate> ties;      // others whose interval overlaps the winner's
  int64_t legal = 0, measured = 0;  // candidates
  int64_t failed = 0;               // of the measured: not ok
  bool complete = true;             // false: stopped early (interrupt, budget)
  std::string skipped;              // a sentence where there is no winner (out of memory, no correct candidate)
};

struct TunedTable {
  Json tool;  // version, commit, dirty, argv
  DeviceInfo device;
  Json environment;
  std::string regime = "burst";
  std::vector<Entry> entries;
};

Json to_json(const TunedTable& table);
TunedTable table_from_json(const JsonAt& json);
TunedTable read_table(const std::filesystem::path& path);
/// Writes as the file does; returns the name under which it kept what others wrote there, or an empty one.
std::filesystem::path write_table(KeptFile& file, const TunedTable& table);

/// tool object of this program: version, commit, dirty, and argv as given.
Json tool_json(const std::vector<std::string>& argv);

/// Derived figures of an entry.
double tflops(const Entry& entry);  // on real rows
double terabytes_per_second(const Entry& entry);
double roof_seconds(const Entry& entry, const DeviceInfo& device);  // max(flops / peak, bytes / bandwidth); 0 unknown
const Rival* find_rival(const Entry& entry, const std::string& name);
/// What uneven rows cost: how much longer the winner takes than the table's winner for balanced rows of the same shape
/// and number, 0.12 for 12 %. Nothing for the balanced entry itself and where there is none.
std::optional<double> loss_to_balanced(const TunedTable& table, const Entry& entry);

/// One table from several. Two entries of one cell conflict, unless equal; `prefer` is "", "fastest", "first" or
/// "last". Tables of different devices don't merge (Exit::machine). The conflicts are returned.
struct Merged {
  TunedTable table;
  std::vector<std::string> conflicts;  // cell ids
};
Merged merge(const std::vector<TunedTable>& tables, const std::string& prefer);

/// How well an entry answers for a cell.
enum class Match { none, other_device, other_routing, nearest, exact };
std::string_view name(Match match);

struct Answer {
  Match match = Match::none;
  const Entry* entry = nullptr;    // null for none
  double log_tokens_distance = 0;  // |log2(tokens / entry tokens)|
  std::string explanation;         // one sentence: what matched, what did not
};

/// The best entry for a cell: same shape (layer sizes, op, dtype, fusion), then device, routing, and distance in
/// log(tokens). An entry of another device is an answer only as Match::other_device, and only where that
/// device can run its winner. `device` null: not compared.
Answer lookup(const TunedTable& table, const Cell& cell, const DeviceInfo* device);

}  // namespace moetune
