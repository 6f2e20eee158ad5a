// The verdict of `check`: is a cell slower than its baseline table says?
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "table/table.h"
#include "tune/rounds.h"

namespace moetune {

enum class Finding { equivalent, improved, regressed, inconclusive, wrong_result, failed, untrusted };
std::string_view name(Finding finding);

/// What may decide a finding that is inconclusive or untrusted: more rounds; the same check again, on a quiet machine;
/// a new table, where the table's own times are too uncertain.
enum class Remedy { none, rounds, again, tune };

struct CellFinding {
  Cell cell;
  Finding finding = Finding::inconclusive;
  std::string reason;                        // a sentence
  Finding by_ratio = Finding::inconclusive;  // by the ratio to the control alone
  Finding by_time = Finding::inconclusive;   // by the time alone
  double change = 0;  // of the ratio to `control`, as a ratio - 1: above 0, slower than in the table
  Interval change_interval;
  double time_change = 0;  // of the time itself
  Interval time_change_interval;
  std::string control;  // the rival whose ratio was judged: "cublas-loop", "default", ...
  Measurement now;
  double before_seconds = 0;
  double control_now_seconds = 0;
  double control_before_seconds = 0;
  int rounds = 0;
  double seconds = 0;  // that the cell took to check
  Remedy remedy = Remedy::none;
};

/// Whether the time shows a regression while the ratio is too uncertain.
bool is_told_by_time(const CellFinding& finding);
/// Whether the winner takes longer than in the table only as its control does.
bool is_slower_machine(const CellFinding& finding);

struct CheckRequest {
  double threshold = 0.05;  // smallest change that counts
  int rounds = 15;          // to begin with
  int max_rounds = 60;      // while inconclusive
  int looks = 1;            // the rounds are divided among so many looks, each over operands made anew
  double wait = 0;          // seconds a cell may wait while other programs use the processors
  double patience = 0;      // seconds that a slowdown must last; it is measured at least twice
  double time_budget = 0;   // seconds; 0 = none
  SampleRequest sample;
};

/// Throws Exit::machine, with both names, where the table is of another device: its ratios say nothing about this one.
void require_comparable(const TunedTable& baseline, const DeviceInfo& device);

/// Verifies each entry's winner, measures it beside its default, the first baseline of the table and its fastest in
/// interleaved rounds, and judges change = (winner / control now) / (winner / control in the table) - 1. The control is
/// the fastest baseline, or the default where the table has none: a loop over many small experts waits for its
/// launches, whose cost differs from load to load. The uncertainties of both ratios count, as independent ones. The
/// change of the time itself is judged too, because a noisy control hides a slowdown: it shows a regression where the
/// ratio is too uncertain and the winner's time grew by more than the control's.
///   equivalent    the interval lies below the threshold, or at the end of all rounds the median does
///   improved      the same, and the median is below minus the threshold, the interval below 0
///   regressed     the median is above the threshold and surely (3.3 standard deviations) above 0, by the ratio or
///                 the time; and further sets of rounds, over operands made anew, confirm that until `patience` has
///                 passed, while none of them lies below the threshold
///   inconclusive  after all rounds the noise is larger than the threshold; or there is nothing to compare with
///   untrusted     a regression or improvement, but the machine may be what changed: the control, which can't have
///                 changed, takes more than 1.25 times as long as in the table, or less than 1 / 1.25 (1.15 where
///                 rounds were also chosen by its time), or other programs used the processors, then or now (kBusy)
///   wrong_result, failed  the winner's result is wrong, or it doesn't run any more
/// Entries without a winner are skipped. Entries whose cell can't be made (a missing trace) throw; `listen` has got the
/// findings before them.
std::vector<CellFinding> check(const TunedTable& baseline, Backend& backend, const CheckRequest& request,
                               const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop);

/// What an inconclusive or untrusted finding counts as.
enum class Undecided { fail, pass };

/// 0 no regression, 1 a regression, a wrong result or a winner that fails, 4 something inconclusive or untrusted and
/// nothing regressed (0 where that may pass), or no finding at all.
int exit_code(const std::vector<CellFinding>& findings, Undecided undecided = Undecided::fail);

/// "+8.0 % ± 1.0 %", of the time where that shows the regression; "-50 % to +60 %" where the interval is wide; empty
/// where nothing was measured.
std::string change_text(const CellFinding& finding);

/// "cell: reason" for each finding that needs one: regressions, what is undecided, and a machine that became slower.
std::vector<std::string> reasons(const std::vector<CellFinding>& findings);

/// What a check says, in a sentence; `whole` where nothing ended it before its last cell.
std::string sentence(const std::vector<CellFinding>& findings, double threshold, bool whole);

/// A table for people, and what it says in a sentence. A `fault`, which ended the check before its last cell, is told
/// after it.
std::string markdown(const std::vector<CellFinding>& findings, double threshold, const std::string& fault = {});

/// When and where a check ran, and how long.
struct CheckRun {
  std::string timestamp;  // its begin, UTC: "2026-11-23T01:26:06"
  std::string hostname;
  double seconds = 0;
  Undecided undecided = Undecided::fail;
};

/// One test case a cell, for a CI: failures are findings of exit code 1, errors those of exit code 4, which are skipped
/// cases with Undecided::pass. A `fault` is a case of its own with an error: cells after it have not passed.
std::string junit_xml(const std::vector<CellFinding>& findings, const CheckRun& run, const std::string& fault = {});

}  // namespace moetune
