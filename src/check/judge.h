// The verdict of `check`: is a cell slower than a table says, or than with another program?
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "record/comparison.h"
#include "record/history.h"
#include "record/table/table.h"

namespace moetune {

enum class Finding { equivalent, improved, regressed, inconclusive, wrong_result, failed, untrusted };
std::string_view name(Finding finding);

/// What may settle an inconclusive or untrusted finding: more rounds; the same check again on a quiet machine; or a new
/// table, if the times in this one are too uncertain.
enum class Remedy { none, rounds, again, tune };

struct CellFinding {
  Cell cell;
  std::string kernel = {};     // which one, where a cell has several: a variant, or a peer
  std::string candidate = {};  // the winner's text; empty for a peer
  Finding finding = Finding::inconclusive;
  std::string reason;                        // a sentence
  Finding by_ratio = Finding::inconclusive;  // by the ratio to the control alone
  Finding by_time = Finding::inconclusive;   // by the time alone
  Estimate change;        // of the ratio to `control`, as a ratio - 1: above 0, slower than in the table
  Estimate time_change;   // of the time itself
  double detectable = 0;  // the smallest slowdown that would have been found: see significance.h
  std::string control;    // the rival whose ratio was judged: "cublas-loop", "default", ...
  Measurement now;
  Metrics<Estimate> metric_changes = {};  // of the winner, as metric_changes()
  double before_seconds = 0;
  double control_now_seconds = 0;
  double control_before_seconds = 0;
  int rounds = 0;
  double seconds = 0;      // that the cell took to check
  bool elsewhere = false;  // the control differs so much that equal times or ratios say nothing
  Remedy remedy = Remedy::none;
  Verdict verdict = {};                // of the winner, now
  std::string code = {};               // of the winner's kernel, now
  std::vector<Rival> rivals_now = {};  // measured beside it, the control last
};
// Against another program: `change` is that from the winner's time there to its time here, before_seconds its time
// there, and time_change is not used; `control` is a baseline that both run, or empty, with its times here (now) and
// there (before).

/// The geometric mean over the cells that could be judged: measured, trusted, and with a control that says something.
struct MeanFinding {
  Finding finding = Finding::inconclusive;  // equivalent, improved, regressed or inconclusive
  Estimate change;
  double detectable = 0;
  size_t cells = 0;
};

struct CheckResult {
  std::vector<CellFinding> findings = {};  // in the table's order
  std::optional<MeanFinding> mean = {};    // of two cells or more
  double threshold = 0.05;
  std::string against = {};  // the other program; empty: the table
  std::string fault = {};    // what ended the check before its last cell
  bool same_rounds = true;   // as those of `against`; false: its times were measured before
};

/// The id of its cell, and which kernel.
std::string finding_id(const CellFinding& finding);
/// Whether the time shows a regression while the ratio is too uncertain.
bool is_told_by_time(const CellFinding& finding);
/// Whether the winner takes longer than in the table, but so does its control.
bool is_slower_machine(const CellFinding& finding);

/// Another program, or this one with other kernels.
struct Against {
  Backend* backend = nullptr;  // of the same device
  std::string name;            // for people: its file
  // Of packs, by the table's entries: what runs there instead of the entry's winner, and entries of kernels that a side
  // lacks, which are not measured: their finding and its reason.
  std::map<const Entry*, Candidate> winners = {};
  std::map<const Entry*, std::pair<Finding, std::string>> lacking = {};
};

struct CheckRequest {
  double threshold = 0.05;  // smallest change that counts
  int rounds = 15;          // to begin with
  int max_rounds = 60;      // while inconclusive
  int looks = 1;            // parts of the rounds, each over operands made anew
  double wait = 0;          // seconds a cell may wait while other programs use the processors
  double patience = 0;      // seconds that a slowdown must last; it is measured at least twice
  double time_budget = 0;   // seconds; 0 = none
  SampleRequest sample;
  std::optional<Against> against = {};  // compare with it, and not with the table's times
  bool all_rivals = false;              // measure every rival of the table
};

/// Throws Exit::machine, with both names, where the table is of another device: its ratios say nothing about this one.
void require_comparable(const TunedTable& table, const DeviceInfo& device);

/// Verifies each entry's winner, measures it beside its default, the first baseline of the table and its fastest in
/// interleaved rounds, and judges change = (winner / control now) / (winner / control in the table) - 1. The control is
/// the fastest baseline, or the default where the table has none: a loop over many small experts waits for its
/// launches, whose cost differs from load to load. The uncertainties of both ratios count, as independent ones. The
/// change of the time itself is judged too, because a noisy control hides a slowdown: it shows a regression where the
/// ratio is too uncertain and the winner's time grew by more than the control's.
/// With `against` nothing of the table but its winners is used: the same winner is measured here and there in the same
/// rounds, and change = here / there - 1. Both sides keep their operands at the same time.
///   equivalent    the interval lies below the threshold (2.5 times the interval, if a set ends early, after five
///                 looks or more), or at the end of all rounds the median does; it is no wider
///                 than the threshold to each side, or doesn't pass minus the threshold either
///   improved      it lies below the threshold, the median is below minus the threshold and the interval below 0, and
///                 it is a discovery among all cells; else it is equivalent, or with a wide interval inconclusive
///   regressed     the median is above the threshold and surely (3.3 standard deviations) above 0, by the ratio or
///                 the time; it is a discovery among all cells at a false discovery rate of 5 %; and further sets of
///                 rounds, over operands made anew after all cells were measured, confirm it until `patience` has
///                 passed, while none of them lies below the threshold
///   inconclusive  after all rounds the noise is larger than the threshold; or there is nothing to compare with
///   untrusted     a regression or improvement, but the machine may be what changed: the control, which can't have
///                 changed, takes more than 1.25 times as long as in the table, or less than 1 / 1.25 (1.15 where
///                 rounds with a slow control were left out). Against a program: the baseline of both sides differs
///                 by more than the threshold. Or other programs used the processors, then or now (kBusy), unless
///                 such a baseline shows that they slowed both sides alike. Or nothing shows, but the machine is so
///                 different that this says nothing: the control takes over twice as long as in the table, or less
///                 than half; against a program, that baseline differs by more than a quarter
///   wrong_result, failed  the winner's result is wrong, or it doesn't run any more
/// Where the geometric mean alone shows a regression, fresh rounds of every cell must show it again.
/// Entries without a winner are skipped. `listen` gets each finding when it is final, those to confirm last. Entries
/// whose cell can't be made (a missing trace) throw; `listen` has got the findings before them, unconfirmed ones as
/// inconclusive.
CheckResult check(const TunedTable& table, Backend& backend, const CheckRequest& request,
                  const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop);

/// Judges other libraries' times beside those of a file called `name`, which were measured before: the change of each
/// peer's median in each cell, beyond that of moetune-export where both have it, because its kernels don't change. The
/// intervals count as independent ones, and one of the change itself must show a regression in both `now` and `again`,
/// a second measurement, if there is one. Peers that `now` lacks have failed; those that it has alone are not judged.
CheckResult check_peers(const Peers& before, const Peers& now, const Peers* again, const std::string& name,
                        double threshold);

/// What an inconclusive or untrusted finding counts as.
enum class Undecided { fail, pass };

/// 0 no regression, 1 a regression, a wrong result or a winner that fails, 4 something inconclusive or untrusted and
/// nothing regressed (0 where that may pass), or no finding at all. A mean that is inconclusive counts for nothing.
int exit_code(const CheckResult& result, Undecided undecided = Undecided::fail);

/// Whether a finding, or the mean, makes exit code 1; and whether it makes 4.
bool is_no(Finding finding);
bool is_open(Finding finding);

/// "+8.0 % ± 1.0 %"; only the interval where it is too wide for one number.
std::string percent_text(const Estimate& change);

/// The same of a finding, of the time where that shows the regression; empty where nothing was measured.
std::string change_text(const CellFinding& finding);

/// "1.4 %": the smallest slowdown that would have been found; empty where nothing was measured.
std::string detectable_text(const CellFinding& finding);

/// The time before as `now` is compared with it, so that the change follows from the two: scaled by how much longer the
/// control takes now, if the ratio to it was judged. 0 = unknown.
double compared_seconds(const CellFinding& finding, const CheckResult& result);

/// What the change is measured by: "time", "cublas-loop", or "paired time" against another program.
std::string judged_by(const CellFinding& finding, const CheckResult& result);

/// "cell: reason" for each finding that needs one, wrong results first: failures, regressions, what is undecided, and a
/// machine that became slower.
std::vector<std::string> reasons(const CheckResult& result);

/// "The geometric mean over 3 cells changed by +0.1 % ± 0.3 %: equivalent; ..."; empty if there is none.
std::string mean_text(const CheckResult& result);

/// The result of a check in a sentence.
std::string sentence(const CheckResult& result);

/// When and where a check ran, and how long.
struct CheckRun {
  std::string timestamp;  // its begin, UTC: "2026-11-23T01:26:06"
  std::string hostname;
  double seconds = 0;
  Undecided undecided = Undecided::fail;
  std::string commit = {}, device = {}, regime = {};  // for the history
};

/// One test case per cell: failures are findings of exit code 1, errors those of exit code 4, which are skipped cases
/// with Undecided::pass. The mean is a case where there is one. A fault is a separate case with an error: cells after
/// it have not passed.
std::string junit_xml(const CheckResult& result, const CheckRun& run);

/// The winners' times for github-action-benchmark (tool: customSmallerIsBetter): [{"name": the cell's id, "unit": "µs",
/// "value", "range": "± 1.2", "extra": the verdict, the change and the candidate}]. Cells that were not measured are
/// not there.
Json benchmark_json(const CheckResult& result);

/// The run as a line of a history: device and regime are those of the check.
HistoryRun history_run(const CheckResult& result, const CheckRun& run);

/// One line for each finding that is not good, wrong results first, as GitHub Actions shows beside a commit:
/// "::error title=...::" for what makes exit code 1 and for a fault, "::warning title=...::" for what is undecided.
std::string annotations(const CheckResult& result);

struct UpdatedTable {
  TunedTable table;
  std::vector<std::string> kept = {};             // "cell: why its times stay"
  std::vector<std::string> dropped_choices = {};  // titles of layers whose robust choices were made from other times
};

/// The table with the winners' and rivals' times of `result`, for which every rival was measured; the winners stay.
/// Rivals that don't run here any more are removed. A cell that was not measured, or too noisily to compare with,
/// stays as it is. `update` gets the cells that changed, and becomes part of the table. Throws Exit::machine where the
/// table would mix times of two environments.
UpdatedTable update_table(const TunedTable& table, const CheckResult& result, const Json& environment, Update update);

}  // namespace moetune
