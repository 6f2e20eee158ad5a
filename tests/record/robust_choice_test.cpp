// Robust choices: which contender is chosen, which token counts are merged, what files and tables say of them.
#include "record/robust_choice.h"

#include <limits>

#include "built_in.h"
#include "export/exporter.h"
#include "export/serving/serving_rows.h"
#include "record/chosen.h"

namespace moetune {
namespace {

using sample::cell;
using sample::chosen_table;
using sample::contest;
using sample::entry;
using sample::mma;
using sample::small_up;
using sample::two_counts;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<Cell> uniform_at(const std::vector<int64_t>& tokens) {
  std::vector<Cell> cells;
  for (const int64_t count : tokens) cells.push_back(cell(small_up(), count));
  return cells;
}

std::vector<std::string> ranges(const std::vector<RobustChoice>& choices) {
  std::vector<std::string> result;
  for (const RobustChoice& choice : choices) result.push_back(text(choice.tokens));
  return result;
}

TEST(RobustChoice, RegretIsTheTimeOverTheLeastOfTheCell) {
  const RobustChoice choice = robust_choices(two_counts(), Rule::worst, 0).at(0);
  EXPECT_DOUBLE_EQ(regret(choice, 0, 0), 0);
  EXPECT_NEAR(regret(choice, 1, 1), 0.04, 1e-9);
  EXPECT_NEAR(regret(choice, 2, 0), 0.5, 1e-9);
  EXPECT_NEAR(worst_regret(choice, 2), 0.5, 1e-9);
  EXPECT_NEAR(mean_regret(choice, 2), 0.35, 1e-9);
}

TEST(RobustChoice, TheRuleDecides) {
  // A is best in two of three cells and bad in one; B is never bad.
  const Contest of = contest({cell(small_up(), 16), cell(small_up(), 16, "zipf:1"), cell(small_up(), 16, "single")},
                             {mma(16), mma(32)}, {{100, 100, 115}, {110, 110, 100}});
  const RobustChoice worst = robust_choices(of, Rule::worst, 0).at(0), mean = robust_choices(of, Rule::mean, 0).at(0);
  EXPECT_EQ(worst.candidate(), mma(32));
  EXPECT_NEAR(score(worst, worst.chosen), 0.10, 1e-9);
  EXPECT_EQ(mean.candidate(), mma(16));
  EXPECT_NEAR(score(mean, mean.chosen), 0.05, 1e-9);
}

TEST(RobustChoice, BreaksTiesByTheOtherRegret) {
  const std::vector<Cell> cells = {cell(small_up(), 16), cell(small_up(), 16, "zipf:1")};
  const auto chosen = [&](const std::vector<std::vector<double>>& us) {
    return robust_choices(contest(cells, {mma(16), mma(32), mma(64)}, us), Rule::worst, 0).at(0).candidate();
  };
  EXPECT_EQ(chosen({{110, 110}, {100, 110}, {110, 100}}), mma(32));
  EXPECT_EQ(chosen({{150, 150}, {110, 100}, {100, 110}}), mma(32));
}

TEST(RobustChoice, EachTokenCountHasItsOwnWithoutALoss) {
  const std::vector<RobustChoice> choices = robust_choices(two_counts(), Rule::worst, 0);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].candidate(), mma(16));
  EXPECT_EQ(choices[1].candidate(), mma(64));
  EXPECT_EQ(choices[0].cells.size(), 2u);
  EXPECT_EQ(ranges(choices), (std::vector<std::string>{"1 to 32", "33 and more"}));
}

TEST(RobustChoice, MergesCountsWithinTheLoss) {
  EXPECT_EQ(robust_choices(two_counts(), Rule::worst, 0.039).size(), 2u);
  const std::vector<RobustChoice> merged = robust_choices(two_counts(), Rule::worst, 0.041);
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0].candidate(), mma(32));
  EXPECT_EQ(text(merged[0].tokens), "all");
  EXPECT_DOUBLE_EQ(merged[0].bucket_loss, 0.041);
  // Its mean regret over the four cells is (1 + 4 + 0.5 + 4) / 4 %.
  EXPECT_EQ(robust_choices(two_counts(), Rule::mean, 0.023).size(), 2u);
  EXPECT_EQ(robust_choices(two_counts(), Rule::mean, 0.024).size(), 1u);
}

TEST(RobustChoice, AsFewAsPossibleThenOfTheLeastRegret) {
  // {1, 2} {4} and {1} {2, 4} are both two choices; the second has the smaller sum of scores.
  const Contest of = contest(uniform_at({1, 2, 4}), {mma(16), mma(32), mma(64)},
                             {{100, 101.9, 200}, {150, 100, 150}, {200, 100.1, 100}});
  const std::vector<RobustChoice> choices = robust_choices(of, Rule::worst, 0.02);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].cells.size(), 1u);
  EXPECT_EQ(choices[1].candidate(), mma(64));
}

TEST(RobustChoice, ACountWhoseOwnLossIsLargerStandsAlone) {
  const Contest of = contest({cell(small_up(), 16), cell(small_up(), 16, "zipf:1"), cell(small_up(), 64)},
                             {mma(16), mma(32)}, {{100, 150, 100}, {150, 100, 100}});
  const std::vector<RobustChoice> choices = robust_choices(of, Rule::worst, 0.02);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_NEAR(score(choices[0], choices[0].chosen), 0.5, 1e-9);
}

TEST(RobustChoice, RangesMeetInTheMiddleOfTheLogarithm) {
  const auto bounds = [](const std::vector<int64_t>& tokens) {
    std::vector<std::vector<double>> us(2, std::vector<double>(tokens.size(), 100));
    for (size_t i = 0; i < tokens.size(); ++i) us[i % 2][i] = 200;  // the winners alternate
    return ranges(robust_choices(contest(uniform_at(tokens), {mma(16), mma(32)}, us), Rule::worst, 0.02));
  };
  EXPECT_EQ(bounds({1, 2, 4}), (std::vector<std::string>{"1", "2", "3 and more"}));
  EXPECT_EQ(bounds({7, 8}), (std::vector<std::string>{"1 to 7", "8 and more"}));
  EXPECT_EQ(bounds({1, 4096}), (std::vector<std::string>{"1 to 64", "65 and more"}));
  EXPECT_EQ(bounds({100'000'000, 200'000'000}), (std::vector<std::string>{"1 to 141421356", "141421357 and more"}));
  EXPECT_EQ(bounds({16}), std::vector<std::string>{"all"});
}

TEST(RobustChoice, LeavesOutWrongContenders) {
  Contest of = two_counts();
  of.times[0][1] = std::nullopt;
  of.left_out.push_back({mma(16), id(of.cells[1]), "its result is wrong: 7 of 2048 elements differ"});
  const std::vector<RobustChoice> choices = robust_choices(of, Rule::worst, 0);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].candidate(), mma(32));
  EXPECT_EQ(choices[0].contenders.size(), 2u);
  ASSERT_EQ(choices[0].left_out.size(), 1u);
  EXPECT_EQ(choices[0].left_out[0].candidate, mma(16));
  EXPECT_EQ(choices[1].contenders.size(), 3u);
  EXPECT_TRUE(choices[1].left_out.empty());
}

TEST(RobustChoice, CoversCountsWithoutAContender) {
  const Contest of = contest(uniform_at({16, 64, 256}), {mma(16), mma(32)}, {{100, kNone, 200}, {200, kNone, 100}});
  const std::vector<RobustChoice> choices = robust_choices(of, Rule::worst, 10);
  EXPECT_EQ(ranges(choices), (std::vector<std::string>{"1 to 64", "65 and more"}));
  EXPECT_TRUE(robust_choices(contest(uniform_at({16}), {mma(16)}, {{kNone}}), Rule::worst, 0).empty());
}

TEST(RobustChoice, RulesAreWords) {
  EXPECT_EQ(parse_rule("mean", "--choose"), Rule::mean);
  EXPECT_EQ(error_of([] { parse_rule("wurst", "--choose"); }).what, "unknown --choose 'wurst'");
  EXPECT_EQ(error_of([] { parse_rule("wurst", "--choose"); }).hint, "did you mean 'worst'?");
}

TEST(ChoiceJson, ReadAndWrittenIsTheSame) {
  TunedTable table = chosen_table(two_counts(), Rule::mean, 0.03);
  table.choices[0].left_out.push_back({mma(128), id(table.entries[2].cell), "timeout"});
  const Json json = to_json(table);
  const TunedTable again = table_from_json(JsonAt(json, "t.json"), built_in());
  EXPECT_EQ(pretty_json(to_json(again)), pretty_json(json));
  ASSERT_EQ(again.choices.size(), 1u);
  EXPECT_EQ(again.choices[0].candidate(), mma(32));
  EXPECT_EQ(again.choices[0].rule, Rule::mean);
  EXPECT_EQ(again.choices[0].cells, table.choices[0].cells);
  EXPECT_EQ(again.choices[0].left_out[0].reason, "timeout");
  EXPECT_EQ(json["choices"][0]["contenders"][1]["regrets"].dump(), "[0.01,0.04,0.005,0.04]");
  EXPECT_EQ(json["choices"][0]["tokens"].dump(), R"({"from":1,"to":null})");
}

TEST(ChoiceJson, LargeRegretsAndOddTimesAreReadBack) {
  const TunedTable table =
      chosen_table(contest({cell(small_up(), 16), cell(small_up(), 16, "zipf:1")}, {mma(16), mma(32)},
                           {{9.1234567, 12345.678912}, {121.7654321, 0.00123456789}}));
  const Json json = to_json(table);
  EXPECT_EQ(pretty_json(to_json(table_from_json(JsonAt(json, "t.json"), built_in()))), pretty_json(json));
}

TEST(ChoiceJson, DamageIsRefusedWithThePlace) {
  const auto read = [](const JsonAt& json) { table_from_json(json, built_in()); };
  sample::expect_refused(
      to_json(chosen_table()), "t",
      {{"/choices/0/rule", "\"best\"", "t: choices[0].rule: unknown rule 'best'"},
       {"/choices/0/bucket_loss", "-1", "t: choices[0].bucket_loss: must be at least 0, found -1"},
       {"/choices/0/tokens/from", "2",
        "t: choices[0].tokens: the ranges of a layer must cover all token counts: this one must begin at 1"},
       {"/choices/1/tokens/from", "40",
        "t: choices[1].tokens: the ranges of a layer must cover all token counts: this one must begin at 33"},
       {"/choices/1/tokens/to", "900",
        "t: choices: the last range of custom up, fwd bf16: 4 experts, top 2, n 64, k 32 must have no end"},
       {"/choices/0/tokens/to", "null",
        "t: choices[1].tokens: it comes after a range of the same layer that has no end"},
       {"/choices/0/tokens/to", "12", "t: choices[0].cells[0]: 16 tokens are outside the range 1 to 12"},
       {"/choices/0/cells/1", "\"x\"", "t: choices[0].cells[1]: the table has no winner for x"},
       {"/choices/0/cells/1", "\"custom/up/fwd/bf16/t16/uniform/e4/top2/n64/k32\"",
        "t: choices[0].cells[1]: custom/up/fwd/bf16/t16/uniform/e4/top2/n64/k32 is in the list twice"},
       {"/choices/0/cells", "[]", "t: choices[0].cells: is empty"},
       {"/choices/0/contenders/0/median_us", "[100]",
        "t: choices[0].contenders[0].median_us: expected 2 values, one for each cell, found 1"},
       {"/choices/0/contenders/0/median_us/0", "120",
        "t: choices[0].contenders[0].median_us[0]: 120 lies outside its interval 99 to 101"},
       {"/choices/0/contenders/2/regrets/0", "0.4",
        "t: choices[0].contenders[2].regrets[0]: 0.4 contradicts the times: expected 0.5"},
       {"/choices/0/contenders/1/mean_regret", "0.01",
        "t: choices[0].contenders[1].mean_regret: 0.01 contradicts the times: expected 0.025"},
       {"/choices/0/worst_regret", "0.01", "t: choices[0].worst_regret: 0.01 contradicts the times: expected 0"},
       {"/choices/0/left_out", "", "t: choices[0]: 'left_out' is missing"}},
      read);
}

TEST(ChoiceJson, ACandidateThatIsNotTheBestIsRefused) {
  Json json = to_json(chosen_table());
  json["choices"][0]["candidate"] = json["choices"][0]["contenders"][1]["candidate"];
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what,
            "t: choices[0].candidate: by the rule 'worst' " + text(mma(16)) + " has less regret");
  json["choices"][0]["rule"] = "layer";  // then times of another projection count too
  json["choices"][0]["worst_regret"] = json["choices"][0]["contenders"][1]["worst_regret"];
  json["choices"][0]["mean_regret"] = json["choices"][0]["contenders"][1]["mean_regret"];
  EXPECT_EQ(table_from_json(JsonAt(json, "t"), built_in()).choices[0].candidate(), mma(32));
  json["choices"][0]["candidate"] = to_json(mma(128));
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what,
            "t: choices[0].candidate: it is not among the contenders");
}

TEST(ChoiceJson, MergedCountsMustKeepTheLoss) {
  Json json = to_json(chosen_table(two_counts(), Rule::worst, 0.05));
  json["choices"][0]["bucket_loss"] = 0.01;
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what,
            "t: choices[0]: its regret 0.04 is over bucket_loss 0.01, and yet token counts are merged");
}

TEST(ChoiceJson, ACandidateThatTheDeviceCannotRunIsRefused) {
  TunedTable table = chosen_table();
  table.choices[0].contenders[0].candidate = mma(16, 128, 64, 4, 9);
  const Json json = to_json(table);
  const std::string what = error_of([&] { table_from_json(JsonAt(json, "t"), built_in()); }).what;
  EXPECT_TRUE(holds(what, "t: choices[0].candidate: the table's own device cannot run it: ")) << what;
}

Answer ask(const TunedTable& table, const Cell& wanted, double far = std::numeric_limits<double>::infinity()) {
  const DeviceInfo device = sample::h200();
  return lookup(table, wanted, &device, far);
}

TEST(LookupOfChoices, AnswersUnseenRoutingsAndCounts) {
  const TunedTable table = chosen_table(two_counts(), Rule::worst, 0.041);
  const Answer answer = ask(table, cell(small_up(), 30, "single"));
  EXPECT_EQ(answer.match, Match::choice);
  ASSERT_NE(answer.choice, nullptr);
  EXPECT_EQ(answer.choice->candidate(), mma(32));
  EXPECT_TRUE(holds(answer.explanation,
                    "the robust choice for all tokens: in 4 cells at most 4.0 % slower than the fastest there, "
                    "2.4 % on average; the nearest of them, custom/up/fwd/bf16/t16/zipf:1/e4/top2/n64/k32, is at "
                    "distance "))
      << answer.explanation;
}

TEST(LookupOfChoices, ChoosesByTheRange) {
  const TunedTable table = chosen_table();
  EXPECT_EQ(ask(table, cell(small_up(), 32, "balanced")).choice, &table.choices[0]);
  EXPECT_EQ(ask(table, cell(small_up(), 33, "balanced")).choice, &table.choices[1]);
  EXPECT_EQ(ask(table, cell(small_up(), 32, "balanced")).entry->cell.tokens, 16);
}

TEST(LookupOfChoices, AnExactCellWins) {
  const TunedTable table = chosen_table(two_counts(), Rule::worst, 0.041);
  const Cell known = cell(small_up(), 16, "zipf:1");
  EXPECT_EQ(ask(table, known).match, Match::exact);
  EXPECT_EQ(ask(table, known).choice, nullptr);
}

TEST(LookupOfChoices, AnotherLayerOrDeviceHasNone) {
  TunedTable table = chosen_table();
  Layer other = small_up();
  other.n = 128;
  EXPECT_EQ(ask(table, cell(other, 16)).match, Match::none);
  table.entries.push_back(entry(cell(other, 16), mma(16), 1));
  EXPECT_EQ(ask(table, cell(other, 32)).match, Match::nearest);
  table.device.name = "another GPU";
  EXPECT_EQ(ask(table, cell(small_up(), 30)).match, Match::other_device);
}

TEST(LookupOfChoices, TooFarIsNoAnswer) {
  EXPECT_EQ(ask(chosen_table(), cell(small_up(), 4096), 2).match, Match::none);
}

TEST(MergeOfChoices, StayWhileTheirEntriesDo) {
  const TunedTable chosen = chosen_table();
  const Entry more = entry(cell(small_up(), 256), mma(64), 3);
  const Merged merged = merge({sample::table({more}), chosen}, "");
  EXPECT_EQ(merged.table.choices.size(), 2u);
  EXPECT_TRUE(merged.dropped_choices.empty());
  EXPECT_EQ(merge({chosen, chosen}, "").table.choices.size(), 2u);
}

TEST(MergeOfChoices, AChangedEntryDropsAllOfItsLayer) {
  const TunedTable chosen = chosen_table();
  const TunedTable newer = sample::table({entry(chosen.entries[3].cell, mma(128), 1)});
  const Merged merged = merge({chosen, newer}, "last");
  EXPECT_TRUE(merged.table.choices.empty());
  EXPECT_EQ(merged.dropped_choices, std::vector<std::string>{"custom up, fwd bf16: 4 experts, top 2, n 64, k 32"});
  EXPECT_EQ(merge({chosen, newer}, "first").table.choices.size(), 2u);
}

TEST(MergeOfChoices, OfTwoTablesThePreferredOnesCount) {
  const TunedTable each = chosen_table(), one = chosen_table(two_counts(), Rule::worst, 0.041);
  EXPECT_EQ(merge({each, one}, "").table.choices.size(), 2u);
  EXPECT_EQ(merge({each, one}, "last").table.choices.size(), 1u);
}

}  // namespace
}  // namespace moetune
