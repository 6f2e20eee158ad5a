// Widths, wording and the progress line: pure functions from values to text.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/text/grid.h"
#include "base/text/units.h"
#include "built_in.h"
#include "cli/tables/winners.h"
#include "cli/text/console.h"
#include "cli/text/output.h"
#include "cli/text/progress.h"

namespace moetune {
namespace {

TEST(Width, ShortensInTheMiddle) {
  EXPECT_EQ(shortened("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(shortened("abcdefghij", 5), "ab…ij");
  EXPECT_EQ(shortened("µµµµµµ", 3), "µ…µ");
  EXPECT_EQ(shortened("abc", 1), "…");
  EXPECT_EQ(shortened("abc", 0), "");
  for (int width = 1; width < 12; ++width) EXPECT_LE(display_width(shortened("ab µ cd ± ef", width)), width);
}

TEST(Wording, TimesHaveTheirUncertainty) {
  const Estimate time = {12.34e-6, 12.0e-6, 12.5e-6};
  EXPECT_EQ(time_text(time), "12.3 µs ± 2.0 %");
}

TEST(Wording, SpeedupTurnsTheRatioRound) {
  Rival rival;
  rival.ratio = {0.5, 0.49, 0.51};
  EXPECT_EQ(speedup_text(&rival), "2.00x (1.96 to 2.04)");
  EXPECT_EQ(speedup_text(&rival, false), "2.00x ± 2.0 %");
  EXPECT_EQ(speedup_text(nullptr), "?");
  rival.ratio = {0.5, 0.25, 1};
  EXPECT_EQ(speedup_text(&rival, false), "1.00x to 4.00x");
  EXPECT_EQ(speedup_text(&rival, true), "1.00x to 4.00x");
  EXPECT_EQ(factor_text(Estimate{131.2, 129.6, 133.4}), "131x (130 to 133)");
}

TEST(Wording, Rates) {
  EXPECT_EQ(rate_text(3.871e12, "B"), "3.871 TB/s");
  EXPECT_EQ(rate_text(5.5e11, "FLOP"), "550 GFLOP/s");
}

TEST(Wording, Plurals) {
  EXPECT_EQ(counted(1, "cell"), "1 cell");
  EXPECT_EQ(counted(0, "cell"), "0 cells");
  EXPECT_EQ(counted(2, "cell"), "2 cells");
}

TEST(Wording, ShellQuoting) {
  EXPECT_EQ(shell_quoted("plain-1.json"), "plain-1.json");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_line({"moetune", "--set", "block_m=1 2"}), "moetune --set 'block_m=1 2'");
}

RunState state() {
  RunState state;
  state.cell = 1, state.cells = 6;
  state.name = "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1";
  state.done = 30, state.planned = 120, state.planned_so_far = 240, state.fresh = 150;
  state.elapsed = 15, state.best = 12.3e-6;
  return state;
}

TEST(Progress, EtaCountsCellsToComeAsTheAverage) {
  // 0.1 s a trial; 90 here and 4 cells of 120 to come.
  EXPECT_NEAR(remaining_seconds(state()), 57, 1e-9);
}

TEST(Progress, EtaIsUnknownBeforeTheFirstTrial) {
  RunState begun = state();
  begun.fresh = 0;
  EXPECT_TRUE(std::isnan(remaining_seconds(begun)));
}

TEST(Progress, EtaIsBoundByTheBudget) {
  RunState bounded = state();
  bounded.budget = 20;
  EXPECT_NEAR(remaining_seconds(bounded), 5, 1e-9);
  bounded.elapsed = 30;
  EXPECT_EQ(remaining_seconds(bounded), 0);
}

TEST(Progress, ResumedTrialsDoNotQuickenThePace) {
  RunState resumed = state();
  resumed.done = 50;  // fresh stays 150: the pace is the same, 70 are left here
  EXPECT_NEAR(remaining_seconds(resumed), 55, 1e-9);
}

TEST(Progress, LineHasAllParts) {
  EXPECT_EQ(progress_line(state(), 100),
            "[2/6] qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1  30/120  best 12.3 µs  ETA 57.0 s");
}

TEST(Progress, LineFitsAnyTerminal) {
  RunState long_name = state();
  long_name.name = std::string(300, 'x');
  for (const int columns : {10, 20, 40, 60, 79, 80, 200}) {
    EXPECT_LE(display_width(progress_line(long_name, columns)), columns) << columns;
    EXPECT_LE(display_width(progress_line(state(), columns)), columns) << columns;
  }
}

TEST(Progress, NarrowLinesKeepTheNumbers) { EXPECT_EQ(progress_line(state(), 44).substr(0, 13), "[2/6] 30/120 "); }

Entry won(double ratio) {
  Entry entry;
  entry.cell.shape.layer = {.model = "custom", .experts = 4, .top_k = 2, .n = 64, .k = 32};
  entry.cell.tokens = 8;
  entry.candidate = parse_candidate("simt block_m=16 block_n=64 block_k=16");
  entry.measurement.time = {1e-6, 0.99e-6, 1.01e-6, 11};
  entry.flops = 1e6, entry.bytes = 1e6;
  entry.occupancy = 0.5;
  entry.legal = 10, entry.measured = 9, entry.failed = 2;
  Rival rival;
  rival.name = "default", rival.ratio = {ratio, ratio, ratio};
  rival.candidate = parse_candidate("simt block_m=32 block_n=64 block_k=16");
  rival.measurement = entry.measurement;
  rival.measurement.time = {1e-6 / ratio, 0.99e-6 / ratio, 1.01e-6 / ratio, 11};
  entry.rivals = {rival};
  return entry;
}

TEST(Winners, AnswerIsTheGeometricMean) {
  TunedTable table;
  table.entries = {won(0.5), won(0.125)};
  EXPECT_EQ(answer(table, 3), "2 of 3 cells tuned: the winners are 4.00x as fast as the default (geometric means).");
  table.entries = {won(0.5)};
  EXPECT_EQ(answer(table, 1), "1 of 1 cell tuned: the winner is 2.00x as fast as the default.");
}

// As many rounds as an interval needs, and a loop that it is 31.48 times as fast as, give or take much.
Entry noisy(int64_t tokens = 16) {
  Entry entry = won(0.5);
  entry.cell.tokens = tokens;
  Rival loop;
  loop.name = "loop", loop.ratio = {1 / 31.48, 1 / 350.0, 1 / 2.8};
  loop.measurement = entry.measurement;
  loop.measurement.time = {31.48e-6, 31e-6, 32e-6, 11};
  entry.rivals.push_back(loop);
  return entry;
}

TEST(Winners, NoiseIsMarkedAndNotCounted) {
  TunedTable table;
  table.entries = {won(0.5), noisy()};
  EXPECT_EQ(
      answer(table, 2),
      "2 of 2 cells tuned: the winners are 2.00x as fast as the default in 1 cell (geometric means). 1 of 2 cells "
      "is too noisy to trust: " +
          id(noisy().cell) +
          " (its ratio to loop is uncertain by over 100 %); tune again with a longer --wait or on a quieter "
          "machine.");
  const std::string shown = results_text(table, {.format = OutputFormat::markdown});
  EXPECT_NE(shown.find("| 2.00x ± 0.0 % |"), std::string::npos) << shown;
  EXPECT_NE(shown.find("|         noisy |   noisy |"), std::string::npos) << shown;
  EXPECT_NE(shown.find("| simt block_m=16 (too noisy to trust) "), std::string::npos) << shown;
  EXPECT_EQ(shown.find("31.48"), std::string::npos) << shown;
  EXPECT_FALSE(cell_line(table.entries[1], {}, 1, 2).find("the default") != std::string::npos);
  table.entries = {noisy()};
  EXPECT_TRUE(answer(table, 1).starts_with("1 of 1 cell is too noisy to trust: "));
  EXPECT_TRUE(answer(table, 4).starts_with("1 of 4 cells tuned. 1 of 1 cell is too noisy to trust: "));  // interrupted
}

TEST(Winners, OfManyNoisyCellsThreeAreNamed) {
  TunedTable table;
  for (const int64_t tokens : {1, 2, 3, 4, 5}) table.entries.push_back(noisy(tokens));
  const std::string sentence = noise_sentence(table);
  EXPECT_TRUE(sentence.starts_with("5 of 5 cells are too noisy to trust: ")) << sentence;
  EXPECT_NE(sentence.find(id(table.entries[2].cell)), std::string::npos);
  EXPECT_EQ(sentence.find(id(table.entries[3].cell)), std::string::npos);
  EXPECT_NE(sentence.find(" and 2 more; tune again"), std::string::npos) << sentence;
  EXPECT_EQ(noise_sentence({}), "");
}

TEST(Wording, NoiseIsARange) {
  EXPECT_EQ(factor_text(Estimate{31.48, 2.8, 350}), "2.80x to 350x");
  EXPECT_EQ(factor_text(Estimate{1.35, 1.31, 1.39}), "1.35x (1.31 to 1.39)");
  Estimate time = won(1).measurement.time;
  time.low = 0.5e-6, time.high = 11.2e-6;
  EXPECT_EQ(time_text(time), "0.50 µs to 11.2 µs");
}

TEST(Winners, ACellWithoutAWinnerSaysWhy) {
  TunedTable table;
  table.entries = {won(0.5)};
  table.entries[0].skipped = "out of memory";
  EXPECT_NE(results_text(table, {.columns = 80}).find("none: out of memory"), std::string::npos);
  EXPECT_EQ(answer(table, 1), "0 of 1 cell tuned.");
  EXPECT_EQ(cell_line(table.entries[0], {}, 0, 1), "[1/1] " + id(table.entries[0].cell) + ": no winner: out of memory");
}

TEST(Winners, TextFitsIn80Columns) {
  TunedTable table;
  for (int i = 0; i < 3; ++i) {
    Entry entry = won(0.5);
    const Candidate fallback = parse_candidate(
        "wgmma block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative swap=yes "
        "cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static");
    entry.cell.tokens = 4096;
    entry.cell.routing = parse_routing("trace:gpt-oss-20b#11");
    entry.candidate = fallback;
    entry.figures = {32768, 128, 4096, 13.44, 2.5, 128};
    if (i > 0)  // every knob differs
      entry.candidate = parse_candidate(
          "wgmma block_m=176 block_n=256 block_k=128 stages=16 raster=n group=16 consumers=2 schedule=pingpong swap=no "
          "cluster=m in_flight=0 tma_x=no tma_store=rows tiles=dynamic mix=4 hold=256");
    entry.rivals[0].candidate = fallback;
    entry.rivals.push_back(entry.rivals[0]);
    entry.rivals[1].name = "cublas-loop";
    entry.rivals.push_back(entry.rivals[0]);
    entry.rivals[2].name = "cublas-grouped";
    if (i == 2) entry.skipped = "out of memory: it needs 120 GB, 80 GB are free";
    table.entries.push_back(entry);
  }
  const std::string shown = results_text(table, {.columns = 80});
  for (const std::string& line : split(shown, '\n')) EXPECT_LE(display_width(line), 80) << line;
  EXPECT_NE(shown.find("wgmma, the default"), std::string::npos) << shown;
  EXPECT_NE(shown.find("wgmma block_m=176 block_n=256"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("cublas-loop"), std::string::npos) << shown;
  const std::string all = results_text(table, {.verbose = true});
  EXPECT_NE(all.find("cublas-grouped"), std::string::npos) << all;
  EXPECT_NE(all.find(text(table.entries[0].candidate)), std::string::npos) << all;
}

TEST(Winners, LineOfACell) {
  EXPECT_EQ(cell_line(won(0.5), {}, 1, 6), "[2/6] " + id(won(0.5).cell) +
                                               ": simt block_m=16, 1.00 µs ± 1.0 %, 2.00x the default, "
                                               "9 of 10 measured, 2 failed");
}

TEST(Console, ColorWords) {
  EXPECT_THROW(look_at_terminal("sometimes"), Error);
  EXPECT_FALSE(look_at_terminal("never").color);
  EXPECT_TRUE(look_at_terminal("always").color);
  EXPECT_EQ(colored({.is_terminal = false, .columns = 80, .color = false}, Tone::error, "x"), "x");
  EXPECT_EQ(colored({.is_terminal = false, .columns = 80, .color = true}, Tone::error, "x"), "\033[1;31mx\033[0m");
}

TEST(Winners, LossToBalancedHasAColumnWhereThereAreBalancedRows) {
  TunedTable table;
  table.entries = {won(0.5), won(0.5)};
  EXPECT_EQ(results_text(table, {.columns = 80}).find("loss"), std::string::npos);
  table.entries[0].cell.routing = parse_routing("balanced");
  table.entries[1].measurement.time.value = 1.25e-6;
  const std::string shown = results_text(table, {.columns = 80});
  EXPECT_NE(shown.find(" loss |"), std::string::npos) << shown;
  EXPECT_NE(shown.find("| +25.0 % |"), std::string::npos) << shown;
}

}  // namespace
}  // namespace moetune
