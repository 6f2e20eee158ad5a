// Findings of `check`, one of each kind.
#pragma once
#include "check/finding.h"
#include "record/toy.h"
#include "tune/fake_backend.h"

namespace moetune {

inline CellFinding finding(Finding what, double change = 0.001, int64_t tokens = 16) {
  CellFinding result;
  result.cell = fake::small_cell(tokens);
  result.candidate = text(sample::toy(fake::cpu(48)));
  result.finding = what;
  result.reason = "because";
  result.change = {change, change - 0.01, change + 0.01};
  result.control = "loop";
  result.detectable = 0.0234;
  result.now = {.time = {110e-6, 108e-6, 113e-6, 15}, .launches = 150};
  result.before_seconds = 100e-6;
  result.rounds = 15;
  return result;
}

inline MeanFinding mean(Finding what) {
  return {.finding = what, .change = {0.06, 0.05, 0.07}, .detectable = 0.06, .cells = 2};
}

// A cell with each finding, one judged by its time, one of a slower machine, a mean and a fault.
inline CheckResult everything() {
  using enum Finding;
  CheckResult result{.findings = {}, .mean = mean(regressed), .fault = "the GPU was lost"};
  int64_t tokens = 16;
  for (const auto& [what, change] : {std::pair{equivalent, 0.001},
                                     {improved, -0.1},
                                     {regressed, 0.08},
                                     {regressed, 0.9},
                                     {equivalent, 0.0},
                                     {inconclusive, 30.48},
                                     {untrusted, 0.9},
                                     {wrong_result, 0.0},
                                     {failed, 0.0}}) {
    result.findings.push_back(finding(what, change, tokens));
    if (what == wrong_result || what == failed) result.findings.back().rounds = 0;
    tokens *= 2;
  }
  result.findings[0].seconds = 1.23456;
  result.findings[1].now.time.value = 90e-6;
  result.findings[3].by_time = result.findings[4].by_time = regressed;
  result.findings[3].time_change = {0.963, 0.953, 0.973};
  result.findings[5].change.low = -0.5, result.findings[5].change.high = 60;
  result.findings[7].reason = "7 | of\n2048";
  result.findings[8].reason = "a<b> & \"c\" 'd',\r\n::error::here 100 %";
  return result;
}

}  // namespace moetune
