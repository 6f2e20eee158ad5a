// What `check` found in a cell, in the mean of cells, and in all of them, as plain values.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  double detectable = 0;  // the smallest slowdown that would have been found: see SmallestEffect
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

/// What an inconclusive or untrusted finding counts as.
enum class Undecided { fail, pass };

/// 0 no regression, 1 a regression, a wrong result or a winner that fails, 4 something inconclusive or untrusted and
/// nothing regressed (0 where that may pass), or no finding at all. A mean that is inconclusive counts for nothing.
int exit_code(const CheckResult& result, Undecided undecided = Undecided::fail);

/// Whether a finding, or the mean, makes exit code 1; and whether it makes 4.
bool is_no(Finding finding);
bool is_open(Finding finding);
bool was_measured(const CellFinding& finding);
/// Whether the time shows a regression while the ratio is too uncertain.
bool judged_by_time(const CellFinding& finding);
/// Whether the winner takes longer than in the table, but so does its control.
bool is_slower_machine(const CellFinding& finding);

/// The id of its cell, and which kernel.
std::string finding_id(const CellFinding& finding);

CellFinding settled(CellFinding finding, Finding what, std::string reason, Remedy remedy = Remedy::none);

}  // namespace moetune
