// What `check` prints and advises, by what it found.
#include "cli/tables/check_output.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "check/findings.h"
#include "golden.h"

namespace moetune {
namespace {

using Words = std::vector<std::string>;

CellFinding open(Remedy remedy) {
  CellFinding finding;
  finding.finding = Finding::inconclusive;
  finding.remedy = remedy;
  return finding;
}

CheckRequest of(int rounds) {
  CheckRequest request;
  request.rounds = rounds;
  request.max_rounds = 4 * rounds;
  return request;
}

struct Asked {
  CheckRequest request = of(40);
  Words argv = {"moetune", "check", "t.json", "--threshold", "3%", "--wait", "5s", "--device", "cpu"};
  Json tool = {{"argv", {"moetune", "tune", "--model", "mixtral-8x7b", "--resume", "-o", "my table.json"}}};

  std::string about(const std::vector<CellFinding>& findings) const {
    return advice(
        {.findings = findings}, request, argv, tool,
        {.bench = {"moetune", "bench", "--table", "t.json"}, .verify = {"moetune", "verify", "--table", "t.json"}});
  }
};

TEST(CheckMarkdown, IsTheGoldenText) {
  expect_golden("check/golden/check.md", findings_text(everything(), {.format = OutputFormat::markdown}));
}

TEST(CheckMarkdown, NamesTheOtherProgram) {
  const std::string text = findings_text({.findings = {finding(Finding::equivalent)}, .against = "old [moetune](x)*"},
                                         {.format = OutputFormat::markdown});
  EXPECT_NE(text.find("Before is the time with old [moetune\\](x)\\*, measured in the same rounds."), std::string::npos)
      << text;
}

TEST(Advice, MoreRoundsLeaveTheUsersOwnOptions) {
  Asked asked;
  const std::string rest = "t.json --threshold 3% --wait 5s --device cpu";
  EXPECT_EQ(asked.about({open(Remedy::rounds)}), "Next: moetune check --rounds 160 " + rest);
  asked.argv.insert(asked.argv.end(), {"--rounds", "40"});
  EXPECT_EQ(asked.about({open(Remedy::rounds)}), "Next: moetune check --rounds 160 " + rest);
  asked.argv.resize(asked.argv.size() - 2);
  asked.argv.push_back("--rounds=40");
  EXPECT_EQ(asked.about({open(Remedy::rounds)}), "Next: moetune check --rounds 160 " + rest);
}

TEST(Advice, ATableOfAnyNameStaysATable) {
  Asked asked;
  asked.argv = {"check", "check", "-q", "--", "check"};
  EXPECT_EQ(asked.about({open(Remedy::rounds)}), "Next: check check --rounds 160 -q -- check");
}

TEST(Advice, RoundsStayWithinWhatTheOptionTakes) {
  Asked asked;
  asked.request = of(5000);
  EXPECT_TRUE(asked.about({open(Remedy::rounds)}).starts_with("Next: moetune check --rounds 10000 t.json "));
  asked.request = of(10000);
  EXPECT_TRUE(
      asked.about({open(Remedy::rounds)}).starts_with("Next, when this machine is quiet: moetune check t.json "));
}

TEST(Advice, WhatTheTableLacksIsTunedAgain) {
  Asked asked;
  EXPECT_EQ(asked.about({open(Remedy::again), open(Remedy::tune)}),
            "Next, tune again: moetune tune --model mixtral-8x7b -o 'my table.json'");
  EXPECT_TRUE(asked.about({open(Remedy::tune), open(Remedy::rounds)}).starts_with("Next: moetune check --rounds 160"));
  asked.tool["argv"] = {"moetune", "merge", "a.json", "b.json"};
  EXPECT_EQ(asked.about({open(Remedy::tune)}), "Next: tune again");
  asked.tool = Json::object();
  EXPECT_EQ(asked.about({open(Remedy::tune)}), "Next: tune again");
}

TEST(Advice, ARegressionIsLookedAt) {
  CellFinding bad;
  bad.finding = Finding::regressed;
  EXPECT_EQ(Asked{}.about({bad, open(Remedy::rounds)}),
            "Next: moetune bench --table t.json --projection up --op fwd --tokens 0 --routing uniform");
}

TEST(Advice, AWrongResultIsVerified) {
  CellFinding slow, wrong;
  slow.finding = Finding::regressed, wrong.finding = Finding::wrong_result;
  EXPECT_EQ(Asked{}.about({slow, wrong}),
            "Next: moetune verify --table t.json --projection up --op fwd --tokens 0 --routing uniform");
}

TEST(Advice, ThereIsNoneWhereNothingHelps) {
  CellFinding good;
  good.finding = Finding::equivalent;
  EXPECT_EQ(Asked{}.about({good}), "");
  EXPECT_EQ(Asked{}.about({open(Remedy::none)}), "");
}

}  // namespace
}  // namespace moetune
