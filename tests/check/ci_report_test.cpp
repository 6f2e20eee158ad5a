// Findings for continuous integration: github-action-benchmark, annotations, the mean in JUnit.
#include "check/ci_report.h"

#include <gtest/gtest.h>

#include "base/pretty.h"
#include "error_of.h"
#include "golden.h"
#include "record/toy.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

CellFinding finding(Finding what, int64_t tokens = 16) {
  CellFinding result;
  result.cell = fake::small_cell(tokens);
  result.finding = what;
  result.reason = "because";
  result.change = {0.1, 0.09, 0.11};
  result.detectable = 0.0234;
  result.control = "loop";
  result.now = {.time = {110e-6, 108e-6, 113e-6, 15}, .launches = 150};
  result.before_seconds = 100e-6;
  result.rounds = 15;
  return result;
}

MeanFinding mean(Finding what) {
  return {.finding = what, .change = {0.06, 0.05, 0.07}, .detectable = 0.06, .cells = 2};
}

TEST(Benchmark, HasTheTimesOfWhatWasMeasured) {
  CellFinding broken = finding(Finding::wrong_result, 64);
  broken.rounds = 0;
  TunedTable table;
  table.entries.emplace_back();
  table.entries[0].cell = fake::small_cell();
  table.entries[0].candidate = fake::cpu(48);
  const Json list = benchmark_json({.findings = {finding(Finding::regressed), broken}}, table);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["name"], id(fake::small_cell()));
  EXPECT_EQ(list[0]["unit"], "µs");
  EXPECT_EQ(list[0]["value"], 110);
  EXPECT_EQ(list[0]["range"], "± 2.5");
  EXPECT_EQ(list[0]["extra"], "regressed: +10.0 % ± 1.0 %\n" + text(fake::cpu(48)));
}

TEST(Annotations, TellWhatIsNotWellAndCorrectnessFirst) {
  CheckResult result{.findings = {finding(Finding::inconclusive), finding(Finding::regressed, 32),
                                  finding(Finding::equivalent, 48), finding(Finding::wrong_result, 64)}};
  const auto line = [](const std::string& kind, const std::string& what, int64_t tokens) {
    return "::" + kind + " title=moetune check%3A " + what + "::" + id(fake::small_cell(tokens)) + ": because\n";
  };
  EXPECT_EQ(annotations(result),
            line("error", "wrong_result", 64) + line("error", "regressed", 32) + line("warning", "inconclusive", 16));
  result.findings = {finding(Finding::equivalent)};
  EXPECT_EQ(annotations(result), "");
  result.mean = mean(Finding::regressed);
  result.fault = "interrupted";
  EXPECT_TRUE(holds(annotations(result), "::error title=moetune check%3A geometric mean::The geometric mean over 2"));
  EXPECT_TRUE(holds(annotations(result), "::error title=moetune check%3A fault::interrupted\n"));
}

TEST(Annotations, StayOnTheirLine) {
  CellFinding nasty = finding(Finding::failed);
  nasty.reason = "100 % wrong,\r\n::error::here";
  EXPECT_TRUE(annotations({.findings = {nasty}}).ends_with(": 100 %25 wrong,%0D%0A::error::here\n"));
}

TEST(CheckJUnit, TheMeanIsACase) {
  const CheckRun run{.timestamp = "2026-11-23T01:26:06", .hostname = "node"};
  CheckResult result{.findings = {finding(Finding::equivalent)}, .mean = mean(Finding::equivalent)};
  EXPECT_TRUE(holds(junit_xml(result, run), "tests=\"2\" failures=\"0\"")) << junit_xml(result, run);
  result.mean = mean(Finding::regressed);
  EXPECT_TRUE(holds(junit_xml(result, run), "tests=\"2\" failures=\"1\"")) << junit_xml(result, run);
  EXPECT_EQ(exit_code(result), 1);
  result.mean = mean(Finding::inconclusive);
  EXPECT_EQ(exit_code(result), 0);
}

// A cell with each finding, a mean and a fault.
CheckResult everything() {
  CheckResult result;
  result.mean = mean(Finding::regressed), result.fault = "the GPU was lost";
  int64_t tokens = 16;
  for (const Finding one : {Finding::equivalent, Finding::improved, Finding::regressed, Finding::inconclusive,
                            Finding::untrusted, Finding::wrong_result, Finding::failed}) {
    result.findings.push_back(finding(one, tokens));
    tokens *= 2;
  }
  CellFinding& improved = result.findings[1];
  improved.change = {-0.1, -0.11, -0.09}, improved.now.time.value = 90e-6;
  for (const size_t unmeasured : {5, 6}) result.findings[unmeasured].rounds = 0;
  return result;
}

TEST(CheckGolden, EveryFormatIsTheGoldenText) {
  const CheckRun run{.timestamp = "2026-11-23T01:26:06", .hostname = "node", .seconds = 12.5};
  TunedTable table;
  for (const CellFinding& one : everything().findings) {
    Entry& entry = table.entries.emplace_back();
    entry.cell = one.cell, entry.candidate = sample::toy(fake::cpu(48));
  }
  expect_golden("check/golden/check.md", markdown(everything()));
  expect_golden("check/golden/check.junit.xml", junit_xml(everything(), run));
  expect_golden("check/golden/check.benchmark.json", pretty_json(benchmark_json(everything(), table)));
  expect_golden("check/golden/check.annotations.txt", annotations(everything()));
}

}  // namespace
}  // namespace moetune
