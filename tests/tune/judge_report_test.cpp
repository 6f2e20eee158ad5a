// Findings as Markdown, JUnit XML and exit codes.
#include <gtest/gtest.h>

#include <regex>

#include "error_of.h"
#include "tune/fake_backend.h"
#include "tune/judge.h"

namespace moetune {
namespace {

CellFinding finding(Finding what, double change = 0.001, int64_t tokens = 16) {
  CellFinding result;
  result.cell = fake::small_cell(tokens);
  result.finding = what;
  result.reason = "because";
  result.change = change;
  result.change_interval = {change - 0.01, change + 0.01};
  result.control = "loop";
  result.now.seconds = 110e-6;
  result.before_seconds = 100e-6;
  result.rounds = 15;
  return result;
}

TEST(CheckExitCode, FollowsTheWorstFinding) {
  const auto code = [](std::vector<Finding> all) {
    std::vector<CellFinding> findings;
    for (const Finding one : all) findings.push_back(finding(one));
    return exit_code(findings);
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
}

// Without what aligns the columns.
std::string unaligned(const std::string& text) { return std::regex_replace(text, std::regex(" +"), " "); }

TEST(CheckMarkdown, HasARowACellAndASentence) {
  const std::string text = markdown({finding(Finding::equivalent), finding(Finding::improved, -0.123, 64)}, 0.05);
  const std::string cell = id(fake::small_cell());
  EXPECT_TRUE(holds(unaligned(text), "| " + cell + " | 100 µs | 110 µs | +0.1 % ± 1.0 % | loop | equivalent |"))
      << text;
  EXPECT_TRUE(holds(unaligned(text), "-12.3 % ± 1.0 % | loop | improved |")) << text;
  EXPECT_TRUE(text.ends_with("2 cells: none is slower than its table says by more than 5 %.\n")) << text;
  EXPECT_FALSE(holds(text, "because")) << text;
}

TEST(CheckMarkdown, NamesTheWorstRegressionAndTheReasons) {
  const std::string text = markdown(
      {finding(Finding::regressed, 0.08), finding(Finding::regressed, 0.25, 64), finding(Finding::untrusted, 0.9, 256)},
      0.05);
  EXPECT_TRUE(holds(text, "- " + id(fake::small_cell(64)) + ": because")) << text;
  EXPECT_TRUE(holds(text, "3 cells: 2 failed at a threshold of 5 %, 1 undecided; the worst is " +
                              id(fake::small_cell(64)) + ", +25.0 % ± 1.0 %."))
      << text;
}

TEST(CheckMarkdown, UndecidedIsNotAnAllClear) {
  const std::string text = markdown({finding(Finding::equivalent), finding(Finding::inconclusive)}, 0.025);
  EXPECT_TRUE(holds(text, "2 cells: no regression over 2.5 % was found, 1 undecided.")) << text;
  EXPECT_TRUE(holds(markdown({}, 0.05), "Nothing was checked")) << markdown({}, 0.05);
}

TEST(CheckMarkdown, AFaultIsTheLastWord) {
  const std::string text = markdown({finding(Finding::equivalent)}, 0.05, 0, "interrupted: 1 of 2 cells checked");
  EXPECT_TRUE(text.ends_with("by more than 5 %.\n\nCut short: interrupted: 1 of 2 cells checked\n")) << text;
  const std::string none = markdown({}, 0.05, 0, "interrupted: 0 of 2 cells checked");
  EXPECT_TRUE(holds(none, "Nothing was checked.\n")) << none;
  EXPECT_FALSE(holds(none, "no winner")) << none;
}

TEST(CheckMarkdown, WhatWasNotMeasuredHasNoNumbers) {
  CellFinding broken = finding(Finding::wrong_result);
  broken.rounds = 0;
  broken.reason = "7 | of\n2048";
  const std::string text = markdown({broken}, 0.05);
  EXPECT_TRUE(holds(unaligned(text), "| 100 µs | | | loop | wrong_result |")) << text;
  EXPECT_TRUE(holds(text, "7 \\| of 2048")) << text;
  EXPECT_TRUE(holds(text, "1 cell: 1 failed at a threshold of 5 %; " + id(broken.cell) + ": wrong_result.")) << text;
}

TEST(CheckJUnit, CountsAndNamesTheCases) {
  const std::string xml = junit_xml({finding(Finding::equivalent), finding(Finding::regressed, 0.1, 64),
                                     finding(Finding::inconclusive, 0, 256), finding(Finding::failed, 0, 512)});
  EXPECT_TRUE(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")) << xml;
  EXPECT_TRUE(holds(xml, "tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"1\"")) << xml;
  EXPECT_TRUE(holds(xml, "name=\"" + id(fake::small_cell()) + "\"/>")) << xml;
  EXPECT_TRUE(holds(xml, "<failure message=\"regressed: because\" type=\"regressed\"/>")) << xml;
  EXPECT_TRUE(holds(xml, "<skipped message=\"inconclusive: because\"/>")) << xml;
}

TEST(CheckJUnit, EscapesWhatXmlCannotHold) {
  CellFinding nasty = finding(Finding::failed);
  nasty.reason = "a<b> & \"c\" 'd'\x01\x1b[31m\n\x7f";
  const std::string xml = junit_xml({nasty});
  EXPECT_TRUE(holds(xml, "failed: a&lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;  [31m  \"")) << xml;
}

TEST(CheckJUnit, AFaultIsACaseWithAnError) {
  const std::string xml = junit_xml({finding(Finding::equivalent)}, "the worker \"died\"");
  EXPECT_TRUE(holds(xml, "tests=\"2\" failures=\"0\" errors=\"1\" skipped=\"0\"")) << xml;
  EXPECT_TRUE(holds(xml, "name=\"the cells left\">\n    <error message=\"the worker &quot;died&quot;\"/>\n")) << xml;
}

TEST(CheckJUnit, NoFindingsAreAnEmptySuite) { EXPECT_TRUE(holds(junit_xml({}), "tests=\"0\"")) << junit_xml({}); }

TEST(FindingNames, AreDifferent) {
  EXPECT_EQ(name(Finding::equivalent), "equivalent");
  EXPECT_EQ(name(Finding::wrong_result), "wrong_result");
  EXPECT_EQ(name(Finding::untrusted), "untrusted");
}

}  // namespace
}  // namespace moetune
