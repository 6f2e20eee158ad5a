// A tuned table: for each cell the winner, how sure it is, and what it was compared with.
#pragma once
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/system/file.h"
#include "base/text/grid.h"
#include "record/measurement.h"
#include "record/robust_choice.h"
#include "variant/device.h"
#include "variant/outcome.h"
#include "workload/problem.h"

namespace moetune {

/// A rival in the final interleaved rounds, scored by the paired ratio winner time / its time, round by round.
struct Rival {
  std::string name;          // "default", "cublas-loop", ...
  Candidate candidate = {};  // for "default"
  Measurement measurement = {};
  Estimate ratio = {};  // median over rounds of winner seconds / rival seconds: below 1, the winner is faster
};

struct Entry {
  Cell cell;
  std::vector<int32_t> m_sizes = {};  // the realised rows
  RoutingFigures figures = {};
  double occupancy = 0;         // tile occupancy at the winner's block_m
  double flops = 0, bytes = 0;  // of the problem
  Candidate candidate = {};     // the winner
  std::string code = {};        // a hash of its machine code; empty = unknown
  Measurement measurement = {};
  Verdict verdict = {};
  std::vector<Rival> rivals = {};    // default first, then baselines
  std::vector<Candidate> ties = {};  // others whose interval overlaps the winner's
  int64_t legal = 0, measured = 0;   // candidates; legal are those listed, without a list those tried
  int64_t failed = 0;                // of the measured: not ok
  bool complete = true;              // false: stopped early (interrupt, budget)
  std::string skipped = {};          // a sentence where there is no winner (out of memory, no correct candidate)
};

/// Up and down of a layer's experts, measured as two launches back to back. record/layer.h reads them.
struct TunedLayer {
  Cell up, down;                                 // with winners in the table
  Candidate up_candidate, down_candidate;        // the fastest pair
  Measurement measurement;                       // of both
  Measurement up_measurement, down_measurement;  // of each alone, in the same rounds
  std::vector<Rival> rivals = {};  // "winners" of both, where the pair is another; "default" of both; baselines
};

/// One `check --update`.
struct Update {
  std::string date;                // UTC: "2026-11-23T01:26:06"
  std::string reason;              // the user's words
  Json tool;                       // that measured, as in a table
  std::vector<std::string> cells;  // ids of those whose times it replaced
};

struct TunedTable {
  Json tool;  // version, commit, dirty, argv
  DeviceInfo device;
  Json environment;
  Regime regime = Regime::burst;
  std::vector<Entry> entries;
  std::vector<std::string> sweep = {};     // ids of all cells, in order, where entries are a part; empty = no others
  std::vector<RobustChoice> choices = {};  // those of one shape are consecutive and cover all token counts
  std::vector<Update> updates = {};        // oldest first
  std::vector<TunedLayer> layers = {};     // those without winners of both cells are not written
};

void drop_choices(TunedTable& table, const Shape& shape);

Json to_json(const Entry& entry, const DeviceInfo& device);
Entry entry_from_json(const JsonAt& json, const DeviceInfo& device, const Catalog& catalog);
Json to_json(const Update& update);
Json to_json(const Rival& rival);
Rival rival_from_json(const JsonAt& json, const Catalog& catalog);
/// Throws at the place where the device cannot run the candidate; those of older kernels pass.
void require_runnable(const Candidate& candidate, const Shape& shape, const DeviceInfo& device, const JsonAt& json);
Json to_json(const TunedTable& table);
TunedTable table_from_json(const JsonAt& json, const Catalog& catalog);
TunedTable read_table(const std::filesystem::path& path, const Catalog& catalog);
/// Writes the table; returns the name under which a file that another run wrote was kept, or an empty path.
std::filesystem::path write_table(KeptFile& file, const TunedTable& table);

/// tool object of this program: version, commit, dirty, and argv as given.
Json tool_json(const std::vector<std::string>& argv);

using Entries = std::vector<const Entry*>;
Entries all_entries(const TunedTable& table);
/// The entries of each shape, in the order of the table.
std::vector<Entries> by_shape(const TunedTable& table);

/// The winner and its knobs that differ from the default it was tuned with: "wgmma block_m=64 stages=4", "wgmma, the
/// default". `device` is the table's.
std::string winner_text(const Entry& entry, const DeviceInfo& device);

/// A table with one row for each cell: its tokens, its routing with the seed, then these columns.
Grid cell_grid(const std::vector<Column>& columns);
void add_row(Grid& grid, const Cell& cell, const std::vector<std::string>& texts);
/// Rows of one cell, which the first names.
void add_rows(Grid& grid, const Cell& cell, const std::vector<std::vector<std::string>>& rows);

/// Derived figures of an entry.
double tflops(const Entry& entry);  // on real rows
double terabytes_per_second(const Entry& entry);
double roof_seconds(const Entry& entry, const DeviceInfo& device);  // max(flops / peak, bytes / bandwidth); 0 unknown
/// Names of the entries' rivals, in the order of their first appearance.
std::vector<std::string> rival_names(const Entries& entries);
/// Null where there is none.
const Entry* find_entry(const TunedTable& table, const Cell& cell);
const Rival* find_rival(const Entry& entry, const std::string& name);
/// The rival that `check` judges an entry by: its fastest baseline, else its default; null where it has neither. Only
/// baselines of `offered` count, unless that is null.
const Rival* find_control(const Entry& entry, const std::vector<std::string>* offered = nullptr);
/// Why an entry's times are too noisy to judge by, as a sentence: other programs used the processors, the final was too
/// short, or its time or its ratio to the control is uncertain. Empty for other entries and for one without a winner.
std::string uncertainty(const Entry& entry);
/// Why `check` could not trust this entry: its uncertainty, or ratios that don't follow from its times. Empty where it
/// can be trusted.
std::string distrust(const Entry& entry);
/// Half widths of intervals, in the logarithm. Above them a ratio is too uncertain for `check`, a time for one number.
constexpr double kUncertainRatio = 0.05, kUncertainTime = 0.10;
/// Whether a rival's ratio cannot come from the two times: it lies outside what their intervals allow, by more than
/// kUncertainRatio.
bool contradicts_times(const Entry& entry, const Rival& rival);

/// What uneven rows cost: how much longer the winner takes than the table's winner for balanced rows of the same shape
/// and number: "+12.0 %", or "noisy" where one of the two can't be trusted. Empty for the balanced entry itself and
/// where there is none.
std::string loss_to_balanced(const TunedTable& table, const Entry& entry);

/// Where times were measured.
struct Origin {
  const DeviceInfo& device;
  const Json& environment;
  Regime regime = Regime::burst;
};

/// Whether times of one device apply to the other: it is the same device, or both are GPUs of one model.
bool same_model(const DeviceInfo& a, const DeviceInfo& b);

/// "NVIDIA H200 with 132 SMs".
std::string model_text(const DeviceInfo& device);

/// A value that differs between two JSON objects, such as {"driver", "\"570\"", "nothing"}.
struct ValueDifference {
  std::string key, first, second;  // values as JSON; "nothing" where one side lacks the key
};

/// The differences of two environments under "identity", such as the build of the kernels.
std::vector<ValueDifference> identity_differences(const Json& first, const Json& second);

/// Throws Exit::machine unless both are of one device, as GPUs of one model are, of one regime, and of equal
/// environments under "identity". `what` names the files: "tables".
void require_mergeable(std::string_view what, const Origin& a, const Origin& b);

/// The ids of all sweeps, each once, in the order of their first appearance.
std::vector<std::string> merged_sweep(const std::vector<std::vector<std::string>>& sweeps);

/// One table from several. Two different entries of one cell conflict; `prefer` is "", "fastest", "first" or
/// "last". Tables of different devices don't merge (Exit::machine). The conflicts are returned. Entries come in the
/// order of the tables' sweeps, one after another; a table without a sweep counts with the order of its entries. So the
/// shards of a run give the run's order, in whatever order they are merged. Where cells of a sweep are missing, the
/// merged table has the sweep too.
/// The updates are those of all tables, each once.
/// The choices of a shape are those of the first table that has any (the last for `prefer` "last") and whose entries of
/// their cells are still the same; choices of a shape are dropped where there is no such table.
struct Merged {
  TunedTable table;
  std::vector<std::string> conflicts = {};        // cell ids
  std::vector<std::string> dropped_choices = {};  // titles of shapes
};
Merged merge(const std::vector<TunedTable>& tables, const std::string& prefer);
inline const std::vector<std::string> kPreferences = {"fastest", "first", "last"};

/// Differences that make two shapes different computations, as in "experts 8 (asked: 4)". The names of model and
/// projection do not count.
std::vector<std::string> shape_differences(const Shape& asked, const Shape& found);

/// How well an entry answers for a cell.
enum class Match { none, other_device, other_routing, nearest, choice, exact };
std::string_view name(Match match);

/// How far an entry is from a cell, in doublings: tokens = |log2(t1 / t2)|, skew = |log2(s1 / s2)|, where s is the
/// realised rows of the largest expert over the mean (max_over_mean). Tokens set the rows of the mean expert, tokens
/// times skew those of the largest, and these two choose the tiles: twice the skew counts as much as twice the tokens.
struct Distance {
  double tokens = 0, skew = 0;
  double total() const { return std::hypot(tokens, skew); }
};
/// |log2(a / b)|; 0 where either is not above 0.
double doublings(double a, double b);
/// "1.42 (tokens 1.00, skew 1.01)".
std::string text(const Distance& distance);

struct Answer {
  Match match = Match::none;
  const Entry* entry = nullptr;           // null for none; for a choice the nearest of its cells
  const RobustChoice* choice = nullptr;   // for a choice: its candidate is the answer, not that of `entry`
  std::optional<Distance> distance = {};  // of the entry, or of the nearest where that is too far; 0 for exact
  std::string explanation = {};           // one sentence: what matched, what did not
};

/// The best entry for a cell: same shape (layer sizes, op, dtype, fusion), and the least total distance; the same
/// tokens and routing are exact, whatever the seed. Equal distances: the same routing, then the fewer tokens, then the
/// layer's name, the seed, the table's order. An entry of another device is an answer only as Match::other_device, and
/// only where that device can run its winner. `device` null: not compared. Where no entry is exact, the
/// table's robust choice whose range has the tokens answers in its place, on the table's own device alone. Where the
/// nearest entry (of the choice's cells) lies farther than `max_distance` the match is none. Errors: the cell's rows
/// cannot be made (a missing trace), unless the match is exact.
Answer lookup(const TunedTable& table, const Cell& cell, const DeviceInfo* device,
              double max_distance = std::numeric_limits<double>::infinity());

/// "12.3 µs ± 1.2 %": the half-width of the interval over the median. "9.87 µs to 31.2 µs" where the interval is wider
/// than kUncertainTime: no single number is claimed then.
std::string time_text(const Estimate& time);
/// "0.0602 ± 1.2 %" or "0.05 to 0.07", in the metric's unit; empty where it was not measured.
std::string metric_text(const Measurement& measurement, Metric metric);
/// "12.1 µs to 12.9 µs": the fastest and the slowest block; nothing where the file does not say.
std::string range_text(const Measurement& measurement);

/// "1.35x (1.31 to 1.39)", or "1.35x ± 3.0 %" without `interval`: how much faster the winner is than a rival; "?" for
/// null. "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string speedup_text(const Rival* rival, bool interval = true);

/// "1.35x", "1.35x (1.31 to 1.39)"; "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string factor_text(double factor);
std::string factor_text(const Estimate& factor);

/// "1.35x ± 3.0 %", or "0.52x to 31.48x" where the interval is wider than kUncertainRatio.
std::string ratio_text(const Estimate& factor);

}  // namespace moetune
