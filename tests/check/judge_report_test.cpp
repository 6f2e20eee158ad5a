// Findings as Markdown, JUnit XML, github-action-benchmark, annotations and exit codes. The golden files have a finding
// of each kind.
#include <gtest/gtest.h>

#include "check/judge.h"
#include "error_of.h"
#include "golden.h"
#include "record/toy.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

using enum Finding;

CellFinding finding(Finding what, double change = 0.001, int64_t tokens = 16) {
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

MeanFinding mean(Finding what) {
  return {.finding = what, .change = {0.06, 0.05, 0.07}, .detectable = 0.06, .cells = 2};
}

CheckRun run_of(Undecided undecided = Undecided::fail) {
  return {.timestamp = "2026-11-23T01:26:06", .hostname = "node<1>", .seconds = 12.3456, .undecided = undecided};
}

// A cell with each finding, one told by its time, one of a slower machine, a mean and a fault.
CheckResult everything() {
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

TEST(CheckGolden, EveryFormatIsTheGoldenText) {
  expect_golden("check/golden/check.md", markdown(everything()));
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

TEST(CheckMarkdown, EndsWithTheAnswer) {
  const auto ends = [](const CheckResult& result, const std::string& answer) {
    EXPECT_TRUE(markdown(result).ends_with(answer + "\n")) << markdown(result);
  };
  CellFinding slower = finding(equivalent);
  slower.by_time = regressed;
  ends({.findings = {slower, finding(equivalent, 0, 64)}},
       "2 cells: none is slower than its table says by more than 5 %, except 1 whose control is slower too.");
  ends({.findings = {finding(regressed, 0.08), finding(regressed, 0.25, 64), finding(untrusted, 0.9, 256)}},
       "3 cells: 2 regressions over 5 %, 1 undecided; the worst is " + id(fake::small_cell(64)) + ", +25.0 % ± 1.0 %.");
  ends({.findings = {finding(equivalent), finding(equivalent, 0.001, 64)}, .mean = mean(regressed)},
       "2 cells: their geometric mean regressed by more than 5 %, but no single cell.");
  ends({.findings = {finding(equivalent)}, .against = "old/moetune"},
       "1 cell: none is slower than with old/moetune by more than 5 %.");
  ends({.findings = {finding(equivalent), finding(inconclusive)}, .threshold = 0.025},
       "2 cells: no regression over 2.5 % was found, 1 undecided.");
  ends({}, "Nothing was checked: the table has no winner.");
  ends({.findings = {}, .fault = "interrupted: 0 of 2 cells checked"},
       "Nothing was checked.\n\nCut short: interrupted: 0 of 2 cells checked");
}

TEST(CheckMarkdown, NamesTheOtherProgram) {
  const std::string text = markdown({.findings = {finding(equivalent)}, .against = "old/moetune"});
  EXPECT_TRUE(holds(text, "| paired time | equivalent |")) << text;
  EXPECT_TRUE(holds(text, "The change is that of the time here to the time with old/moetune")) << text;
}

TEST(CheckMarkdown, ARegressionOfRatioAndTimeIsToldByTheRatio) {
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
