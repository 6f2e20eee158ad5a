// Findings as sentences, JUnit XML, github-action-benchmark, annotations and exit codes. The golden files have a
// finding of each kind.
#include <gtest/gtest.h>

#include "check/findings.h"
#include "check/outputs/ci_outputs.h"
#include "check/outputs/sentences.h"
#include "error_of.h"
#include "golden.h"

namespace moetune {
namespace {

using enum Finding;

CheckRun run_of(Undecided undecided = Undecided::fail) {
  return {.timestamp = "2026-11-23T01:26:06", .hostname = "node<1>", .seconds = 12.3456, .undecided = undecided};
}

TEST(CheckGolden, EveryFormatIsTheGoldenText) {
  expect_golden("check/golden/check.junit.xml", junit_xml(everything(), run_of()));
  expect_golden("check/golden/check.benchmark.json", pretty_json(benchmark_json(everything())));
  expect_golden("check/golden/check.annotations.txt", annotations(everything()));
}

TEST(CheckExitCode, FollowsTheWorstFinding) {
  const auto code = [](const std::vector<Finding>& all, Undecided undecided = Undecided::fail) {
    CheckResult result;
    for (const Finding one : all) result.findings.push_back(finding(one));
    return exit_code(result, undecided);
  };
  EXPECT_EQ(code({equivalent, improved}), 0);
  EXPECT_EQ(code({equivalent, regressed}), 1);
  EXPECT_EQ(code({wrong_result}), 1);
  EXPECT_EQ(code({failed}), 1);
  EXPECT_EQ(code({equivalent, inconclusive}), 4);
  EXPECT_EQ(code({untrusted, equivalent}), 4);
  EXPECT_EQ(code({inconclusive, regressed, untrusted}), 1);
  EXPECT_EQ(code({}), 4);  // nothing checked is no all-clear
  EXPECT_EQ(code({untrusted, inconclusive}, Undecided::pass), 0);
  EXPECT_EQ(code({untrusted, regressed}, Undecided::pass), 1);
  EXPECT_EQ(code({}, Undecided::pass), 4);
  CheckResult result{.findings = {finding(equivalent)}, .mean = mean(regressed)};
  EXPECT_EQ(exit_code(result), 1);
  result.mean = mean(inconclusive);
  EXPECT_EQ(exit_code(result), 0);
}

TEST(CheckSentence, IsTheAnswer) {
  const auto is = [](const CheckResult& result, const std::string& answer) { EXPECT_EQ(sentence(result), answer); };
  CellFinding slower = finding(equivalent);
  slower.by_time = regressed;
  is({.findings = {slower, finding(equivalent, 0, 64)}},
     "2 cells: none is slower than its table says by more than 5 %, except 1 whose control is slower too.");
  is({.findings = {finding(regressed, 0.08), finding(regressed, 0.25, 64), finding(untrusted, 0.9, 256)}},
     "3 cells: 2 regressions over 5 %, 1 undecided; the worst is " + id(fake::small_cell(64)) + ", +25.0 % ± 1.0 %.");
  is({.findings = {finding(equivalent), finding(equivalent, 0.001, 64)}, .mean = mean(regressed)},
     "2 cells: their geometric mean regressed by more than 5 %, but no single cell.");
  is({.findings = {finding(equivalent)}, .against = "old/moetune"},
     "1 cell: none is slower than with old/moetune by more than 5 %.");
  is({.findings = {finding(equivalent), finding(inconclusive)}, .threshold = 0.025},
     "2 cells: no regression over 2.5 % was found, 1 undecided.");
  is({}, "Nothing was checked: the table has no winner.");
  is({.findings = {}, .fault = "interrupted: 0 of 2 cells checked"}, "Nothing was checked.");
}

TEST(CheckSentence, ARegressionOfRatioAndTimeIsJudgedByTheRatio) {
  CellFinding timed = finding(regressed, 0.9);
  timed.by_ratio = timed.by_time = regressed;
  EXPECT_EQ(change_text(timed), "+90.0 % ± 1.0 %");
  EXPECT_EQ(judged_by(timed, {}), "loop");
}

TEST(CheckJUnit, WhatIsUndecidedIsSkippedWhereItMayPass) {
  const std::string passing =
      junit_xml({.findings = {finding(untrusted), finding(inconclusive, 0, 64)}}, run_of(Undecided::pass));
  EXPECT_TRUE(holds(passing, "failures=\"0\" errors=\"0\" skipped=\"2\"")) << passing;
  EXPECT_TRUE(holds(passing, "<skipped message=\"inconclusive: because\"/>")) << passing;
}

TEST(CheckJUnit, EscapesWhatXmlCannotHold) {
  CellFinding nasty = finding(failed);
  nasty.reason = "\x01\x1b[31m\x7f\xff\xc3\xa9";
  const std::string xml = junit_xml({.findings = {nasty}}, run_of());
  EXPECT_TRUE(holds(xml, "failed: \\x01\\x1b[31m\\u007f\\xff\xc3\xa9\"")) << xml;
}

}  // namespace
}  // namespace moetune
