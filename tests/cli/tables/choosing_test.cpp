// Robust choices as `tune` words them, and what its options ask for.
#include "cli/tables/choosing.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "record/chosen.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

using sample::chosen_table;

std::string shown(const TunedTable& table, bool verbose = false) {
  return headed_tables_text(choice_tables(table, verbose), {.columns = 80});
}

TEST(ChoosingOptions, AskForARuleAndALoss) {
  EXPECT_FALSE(choose_request({}, {}).has_value());
  EXPECT_EQ(choose_request({.rule = Rule::mean}, {})->rule, Rule::mean);
  EXPECT_EQ(choose_request({.rule = Rule::mean}, {})->bucket_loss, 0);
  const ContestRequest merging = choose_request({.bucket_loss = 0.02}, {}).value();
  EXPECT_EQ(merging.rule, Rule::worst);
  EXPECT_DOUBLE_EQ(merging.bucket_loss, 0.02);
  EXPECT_EQ(error_of([] { choose_request({.rule = Rule::worst}, {.index = 1, .count = 4}); }).what,
            "--choose: a shard holds only a part of the cells to choose for");
}

TEST(ChoosingOptions, NeedCellsToChooseFor) {
  const std::vector<Cell> counts = {sample::cell(sample::small_up(), 16), sample::cell(sample::small_up(), 64)};
  EXPECT_EQ(error_of([&] { require_choice({}, counts); }).what, "--choose: no two cells differ in their routing alone");
  EXPECT_EQ(error_of([&] { require_choice({.bucket_loss = 0.02}, counts); }).exit, Exit::yes);
  EXPECT_EQ(error_of([&] { require_choice({.bucket_loss = 0.02}, {counts[0]}); }).what,
            "--bucket-loss: no layer has two cells to choose for");
}

// A table of the fake device with two routings of one layer.
TunedTable fake_table() {
  TunedTable table;
  for (const char* routing : {"uniform", "zipf:1"}) {
    Entry entry;
    entry.cell = fake::small_cell(16, routing);
    entry.candidate = fake::cpu(routing == std::string("uniform") ? 16 : 24);
    table.entries.push_back(std::move(entry));
  }
  return table;
}

TEST(ContestOn, ALostDeviceLeavesTheWorkToTheNext) {
  fake::FakeBackend lost, sound;
  lost.script.load = [](const Problem&) { throw machine_error("the device is gone"); };
  const std::atomic<bool> stop{false};
  const auto on = [&](const std::vector<Backend*>& devices) {
    size_t choices = 0;
    contest_on(devices, "choosing", true, {}, [&](Backend& device, const ContestListener& listener) {
      choices = measure_choices(fake_table(), device, {.rounds = 5}, listener, stop).size();
    });
    return choices;
  };
  EXPECT_EQ(on({&lost, &sound}), 1u);
  EXPECT_EQ(sound.loads, 2);
  EXPECT_EQ(error_of([&] { on({&lost, &lost}); }).what, "the device is gone");
  lost.script.load = [](const Problem&) { throw CandidateFault(Status::crashed, "it ended by signal 9"); };
  EXPECT_EQ(on({&lost, &sound}), 1u);
  EXPECT_EQ(error_of([&] { on({&lost}); }).what, "the device's worker failed: it ended by signal 9");
}

TEST(MeasureAsFinals, TakesTheirRoundsAndTheEnd) {
  TuneRequest run;
  run.final_rounds = 40, run.final_looks = 8, run.final_wait = 3, run.block_seconds = 4e-3;
  run.regime = Regime::sustained;
  ContestRequest request;
  measure_as_finals(request, run);
  EXPECT_EQ(request.rounds, 40);
  EXPECT_EQ(request.looks, 8);
  EXPECT_EQ(request.wait, 3);
  EXPECT_EQ(request.sample.block_seconds, 4e-3);
  EXPECT_EQ(request.sample.regime, Regime::sustained);
  EXPECT_EQ(request.end, std::chrono::steady_clock::time_point::max());
  run.time_budget = 60;
  measure_as_finals(request, run);
  EXPECT_GT(request.end, std::chrono::steady_clock::now() + std::chrono::seconds(50));
  EXPECT_LE(request.end, std::chrono::steady_clock::now() + std::chrono::seconds(60));
}

TEST(ChoiceSections, ShowRangesThenRegretsInEachCell) {
  EXPECT_EQ(shown(chosen_table(sample::two_counts(), Rule::worst, 0.05)),
            "custom up, fwd bf16: 4 experts, top 2, n 64, k 32\n"
            "Robust choices of least worst regret\n"
            "\n"
            "| for tokens | choice (knobs that differ from the default) | worst |  mean |\n"
            "| ---------- | ------------------------------------------- | ----: | ----: |\n"
            "| all        | mma block_m=32                              | 4.0 % | 2.4 % |\n"
            "\n"
            "| tokens | routing |           time | regret | default's | largest |\n"
            "| -----: | ------- | -------------: | -----: | --------: | ------: |\n"
            "|     16 | uniform | 101 µs ± 1.0 % |  1.0 % |      50 % |    50 % |\n"
            "|     16 | zipf:1  | 104 µs ± 1.0 % |  4.0 % |      20 % |    20 % |\n"
            "|     64 | uniform | 201 µs ± 1.0 % |  0.5 % |     0.0 % |    30 % |\n"
            "|     64 | zipf:1  | 208 µs ± 1.0 % |  4.0 % |     0.0 % |   5.0 % |\n");
}

TEST(ChoiceSections, FitInto80ColumnsWhereTimesAreNoisy) {
  TunedTable table = chosen_table(sample::two_counts(), Rule::worst, 0);
  for (RobustChoice& choice : table.choices)
    for (Standing& one : choice.contenders)
      for (Estimate& time : one.times) time = {time.value, 0.5 * time.value, 2 * time.value};
  std::string line;
  for (const char c : shown(table)) {
    line += c;
    if (c != '\n') continue;
    EXPECT_LE(display_width(line) - 1, 80) << line;
    line.clear();
  }
  EXPECT_TRUE(holds(choices_sentence(table), "(too noisy to trust: times ± ")) << choices_sentence(table);
}

TEST(ChoiceSections, VerboseShowsAllRegrets) {
  const std::string text = shown(chosen_table(), true);
  size_t rows = 0;
  for (size_t at = text.find(" mma block_m="); at != std::string::npos; at = text.find(" mma block_m=", at + 1)) ++rows;
  EXPECT_EQ(rows, 2 + 3 * 4u);
  EXPECT_TRUE(holds(text, "(chosen)"));
}

TEST(ChoicesSentence, HasTheLossAndItsUncertainty) {
  EXPECT_EQ(choices_sentence(sample::table()), "");
  EXPECT_EQ(
      choices_sentence(chosen_table(sample::two_counts(), Rule::worst, 0.05)),
      "1 robust choice: at most 4.0 % slower than the fastest contender of a cell, 2.4 % on average (times ± 1.0 %).");
  EXPECT_EQ(
      choices_sentence(chosen_table()),
      "2 robust choices: at most 0.0 % slower than the fastest contender of a cell, 0.0 % on average (times ± 1.0 %).");
}

}  // namespace
}  // namespace moetune
