// Findings as Markdown, JUnit XML and exit codes.
#include <gtest/gtest.h>

#include <regex>

#include "check/ci_report.h"
#include "check/judge.h"
#include "error_of.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

CellFinding finding(Finding what, double change = 0.001, int64_t tokens = 16) {
  CellFinding result;
  result.cell = fake::small_cell(tokens);
  result.finding = what;
  result.reason = "because";
  result.change = {change, change - 0.01, change + 0.01};
  result.control = "loop";
  result.detectable = 0.0234;
  result.now.time.value = 110e-6;
  result.before_seconds = 100e-6;
  result.rounds = 15;
  return result;
}

CheckResult result_of(std::vector<CellFinding> findings, double threshold = 0.05, const std::string& fault = {}) {
  return {.findings = std::move(findings), .threshold = threshold, .fault = fault};
}

std::string markdown_of(std::vector<CellFinding> findings, double threshold = 0.05, const std::string& fault = {}) {
  return markdown(result_of(std::move(findings), threshold, fault));
}

TEST(CheckExitCode, FollowsTheWorstFinding) {
  const auto code = [](std::vector<Finding> all) {
    std::vector<CellFinding> findings;
    for (const Finding one : all) findings.push_back(finding(one));
    return exit_code(result_of(findings));
  };
  using enum Finding;
  EXPECT_EQ(code({equivalent, improved}), 0);
  EXPECT_EQ(code({equivalent, regressed}), 1);
  EXPECT_EQ(code({wrong_result}), 1);
  EXPECT_EQ(code({failed}), 1);
  EXPECT_EQ(code({equivalent, inconclusive}), 4);
  EXPECT_EQ(code({untrusted, equivalent}), 4);
  EXPECT_EQ(code({inconclusive, regressed, untrusted}), 1);
  EXPECT_EQ(code({}), 4);  // nothing checked is no all-clear
  EXPECT_EQ(exit_code(result_of({finding(untrusted), finding(inconclusive)}), Undecided::pass), 0);
  EXPECT_EQ(exit_code(result_of({finding(untrusted), finding(regressed)}), Undecided::pass), 1);
  EXPECT_EQ(exit_code(result_of({}), Undecided::pass), 4);
}

// Without what aligns the columns.
std::string unaligned(const std::string& text) { return std::regex_replace(text, std::regex(" +"), " "); }

TEST(CheckMarkdown, TellsWhichVerdictsAreByTheTime) {
  CellFinding timed = finding(Finding::regressed, 0.9);
  timed.by_time = Finding::regressed;
  timed.time_change = {0.963, 0.953, 0.973};
  const std::string text = markdown_of({timed}, 0.05);
  EXPECT_TRUE(holds(unaligned(text), "| +96.3 % ± 1.0 % | 2.3 % | time | **regressed** |")) << text;
  timed.by_ratio = Finding::regressed;
  EXPECT_TRUE(holds(unaligned(markdown_of({timed}, 0.05)), "| +90.0 % ± 1.0 % | 2.3 % | loop | **regressed** |"));
}

TEST(CheckMarkdown, ASlowerMachineIsNoPlainAllClear) {
  CellFinding slower = finding(Finding::equivalent);
  slower.by_time = Finding::regressed;
  const std::string text = markdown_of({slower, finding(Finding::equivalent, 0, 64)}, 0.05);
  EXPECT_TRUE(
      text.ends_with("2 cells: none is slower than its table says by more than 5 %, except 1 whose control is "
                     "slower too.\n"))
      << text;
  EXPECT_TRUE(holds(text, "- " + id(slower.cell) + ": because\n")) << text;
}

TEST(CheckMarkdown, AChangeThatIsTooUncertainIsARange) {
  CellFinding noisy = finding(Finding::inconclusive, 30.48);
  noisy.change.low = -0.5, noisy.change.high = 60;
  EXPECT_TRUE(holds(unaligned(markdown_of({noisy}, 0.05)), "| -50 % to +6000 % | 2.3 % | loop | inconclusive |"));
}

TEST(CheckMarkdown, NamesTheWorstRegressionAndTheReasons) {
  const std::string text = markdown_of(
      {finding(Finding::regressed, 0.08), finding(Finding::regressed, 0.25, 64), finding(Finding::untrusted, 0.9, 256)},
      0.05);
  EXPECT_TRUE(holds(text, "- " + id(fake::small_cell(64)) + ": because")) << text;
  EXPECT_TRUE(holds(text, "3 cells: 2 regressions over 5 %, 1 undecided; the worst is " + id(fake::small_cell(64)) +
                              ", +25.0 % ± 1.0 %."))
      << text;
}

TEST(CheckMarkdown, NamesWrongResultsBeforeRegressions) {
  const std::string text = markdown_of({finding(Finding::regressed, 0.9), finding(Finding::untrusted, 0.2, 32),
                                        finding(Finding::wrong_result, 0, 64), finding(Finding::failed, 0, 256)});
  EXPECT_TRUE(holds(text, "4 cells: 1 wrong result, 1 failure, 1 regression over 5 %, 1 undecided; " +
                              id(fake::small_cell(64)) + ": wrong_result."))
      << text;
  const auto place = [&](int64_t tokens) { return text.find("- " + id(fake::small_cell(tokens)) + ": because"); };
  EXPECT_LT(place(64), place(256));
  EXPECT_LT(place(256), place(16));
  EXPECT_LT(place(16), place(32));
}

TEST(CheckMarkdown, TellsTheMean) {
  CheckResult result = result_of({finding(Finding::equivalent), finding(Finding::equivalent, 0.001, 64)});
  result.mean =
      MeanFinding{.finding = Finding::regressed, .change = {0.06, 0.055, 0.065}, .detectable = 0.054, .cells = 2};
  const std::string text = markdown(result);
  EXPECT_TRUE(holds(text,
                    "The geometric mean over 2 cells changed by +6.0 % ± 0.5 %: regressed; a change of 5.4 % would "
                    "have been found.\n"))
      << text;
  EXPECT_TRUE(text.ends_with("2 cells: their geometric mean regressed by more than 5 %, but no single cell.\n"))
      << text;
}

TEST(CheckMarkdown, NamesTheOtherProgram) {
  CheckResult result = result_of({finding(Finding::equivalent)});
  result.against = "old/moetune";
  const std::string text = markdown(result);
  EXPECT_TRUE(holds(unaligned(text), "| paired time | equivalent |")) << text;
  EXPECT_TRUE(holds(text, "The change is that of the time here to the time with old/moetune")) << text;
  EXPECT_TRUE(text.ends_with("1 cell: none is slower than with old/moetune by more than 5 %.\n")) << text;
}

TEST(CheckMarkdown, UndecidedIsNotAnAllClear) {
  const std::string text = markdown_of({finding(Finding::equivalent), finding(Finding::inconclusive)}, 0.025);
  EXPECT_TRUE(holds(text, "2 cells: no regression over 2.5 % was found, 1 undecided.")) << text;
  EXPECT_TRUE(holds(markdown_of({}, 0.05), "Nothing was checked")) << markdown_of({}, 0.05);
}

TEST(CheckMarkdown, AFaultIsTheLastWord) {
  const std::string text = markdown_of({finding(Finding::equivalent)}, 0.05, "interrupted: 1 of 2 cells checked");
  EXPECT_TRUE(text.ends_with("by more than 5 %.\n\nCut short: interrupted: 1 of 2 cells checked\n")) << text;
  const std::string none = markdown_of({}, 0.05, "interrupted: 0 of 2 cells checked");
  EXPECT_TRUE(holds(none, "Nothing was checked.\n")) << none;
  EXPECT_FALSE(holds(none, "no winner")) << none;
}

TEST(CheckMarkdown, WhatWasNotMeasuredHasNoNumbers) {
  CellFinding broken = finding(Finding::wrong_result);
  broken.rounds = 0;
  broken.reason = "7 | of\n2048";
  const std::string text = markdown_of({broken}, 0.05);
  EXPECT_TRUE(holds(unaligned(text), "| 100 µs | | | | loop | **wrong_result** |")) << text;
  EXPECT_TRUE(holds(text, "7 \\| of 2048")) << text;
  EXPECT_TRUE(holds(text, "1 cell: 1 wrong result; " + id(broken.cell) + ": wrong_result.")) << text;
}

CheckRun run_of(Undecided undecided = Undecided::fail) {
  return {.timestamp = "2026-11-23T01:26:06", .hostname = "node<1>", .seconds = 12.3456, .undecided = undecided};
}

std::string junit(const std::vector<CellFinding>& findings, const std::string& fault = {}) {
  return junit_xml(result_of(findings, 0.05, fault), run_of());
}

TEST(CheckJUnit, TellsWhenWhereAndHowLong) {
  CellFinding slow = finding(Finding::equivalent);
  slow.seconds = 1.23456;
  const std::string xml = junit({slow});
  EXPECT_TRUE(holds(xml, " time=\"12.346\" timestamp=\"2026-11-23T01:26:06\" hostname=\"node&lt;1&gt;\">")) << xml;
  EXPECT_TRUE(holds(xml, "name=\"" + id(slow.cell) + "\" time=\"1.235\"/>")) << xml;
}

TEST(CheckJUnit, WhatIsUndecidedIsAnErrorOrSkippedWhereItMayPass) {
  const std::vector<CellFinding> open = {finding(Finding::untrusted), finding(Finding::inconclusive, 0, 64)};
  const std::string failing = junit(open), passing = junit_xml(result_of(open), run_of(Undecided::pass));
  EXPECT_TRUE(holds(failing, "failures=\"0\" errors=\"1\" skipped=\"1\"")) << failing;
  EXPECT_TRUE(holds(failing, "<skipped message=\"untrusted: because\"/>")) << failing;
  EXPECT_TRUE(holds(passing, "failures=\"0\" errors=\"0\" skipped=\"2\"")) << passing;
  EXPECT_TRUE(holds(passing, "<skipped message=\"inconclusive: because\"/>")) << passing;
}

TEST(CheckJUnit, EscapesWhatXmlCannotHold) {
  CellFinding nasty = finding(Finding::failed);
  nasty.reason = "a<b> & \"c\" 'd'\x01\x1b[31m\n\x7f\xff\xc3\xa9";
  const std::string xml = junit({nasty});
  EXPECT_TRUE(holds(xml, "failed: a&lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;\\x01\\x1b[31m \\u007f\\xff\xc3\xa9\""))
      << xml;
}

}  // namespace
}  // namespace moetune
