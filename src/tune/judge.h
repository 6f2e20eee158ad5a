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

struct CellFinding {
  Cell cell;
  Finding finding = Finding::inconclusive;
  std::string reason;        // a sentence
  double change = 0;         // how much slower than the table says, as a ratio - 1; by the control named
  Interval change_interval;
  std::string control;       // the rival whose ratio was judged: "cublas-loop", "default", ...
  Measurement now;
  double before_seconds = 0;
  int rounds = 0;
};

struct CheckRequest {
  double threshold = 0.05;       // smallest change that counts
  int rounds = 15;               // to begin with
  int max_rounds = 60;           // while inconclusive
  double time_budget = 0;        // seconds; 0 = none
  SampleRequest sample;
};

/// Measures each entry's winner beside its default and the first baseline, in interleaved rounds, verifies it first, and
/// compares the paired ratio winner / control of now with the one in the table.
std::vector<CellFinding> check(const TunedTable& baseline, Backend& backend, const CheckRequest& request,
                               const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop);

/// 0 no regression, 1 a regression or a wrong result, 4 something inconclusive or untrusted and nothing regressed.
int exit_code(const std::vector<CellFinding>& findings);

std::string markdown(const std::vector<CellFinding>& findings, double threshold);
std::string junit_xml(const std::vector<CellFinding>& findings);

}  // namespace moetune
