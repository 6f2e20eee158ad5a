// Which cells a shard has, by the option and by the variables of Slurm and MPI.
#include "cli/options/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "error_of.h"

namespace moetune {
namespace {

using Environment = std::map<std::string, std::string>;

Shard chosen(const Environment& environment, const std::string& option = "") {
  return choose_shard(option, [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

Cell cell_of(int64_t tokens) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .projection = Projection::up, .experts = 4, .top_k = 2, .n = 64, .k = 32};
  cell.tokens = tokens;
  cell.routing = parse_routing("uniform");
  return cell;
}

std::vector<int64_t> tokens_of(const Shard& shard, const std::vector<int64_t>& tokens) {
  std::vector<Cell> cells;
  for (const int64_t count : tokens) cells.push_back(cell_of(count));
  std::vector<int64_t> result;
  for (const Cell& cell : cells_of(shard, cells)) result.push_back(cell.tokens);
  return result;
}

TEST(ChosenShard, IsThatOfTheOption) {
  EXPECT_EQ(chosen({}, "2/4"), (Shard{2, 4, ""}));
  EXPECT_EQ(chosen({}), (Shard{1, 1, ""}));
  const Environment step = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(chosen(step, "1/1"), (Shard{1, 1, ""}));
  EXPECT_EQ(chosen(step, "4/9"), (Shard{4, 9, ""}));
}

TEST(ChosenShard, WrongOptionsNameThemselves) {
  EXPECT_EQ(error_of([] { chosen({}, "2"); }).what, "--shard 2: expected i/n");
  for (const char* text : {"0/4", "5/4", "a/4", "1/0", "1/", "/4", "-1/4", "1/4/2"}) {
    const Caught caught = error_of([&] { chosen({}, text); });
    EXPECT_EQ(caught.exit, Exit::request) << text;
    EXPECT_NE(caught.what.find("--shard"), std::string::npos) << caught.what;
  }
}

Environment array(const char* task, const char* first, const char* step, const char* count) {
  return {{"SLURM_ARRAY_TASK_ID", task},
          {"SLURM_ARRAY_TASK_MIN", first},
          {"SLURM_ARRAY_TASK_STEP", step},
          {"SLURM_ARRAY_TASK_COUNT", count}};
}
Environment step(const char* task, const char* count, const char* all = "4") {
  return {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", task}, {"SLURM_STEP_NUM_TASKS", count}, {"SLURM_NTASKS", all}};
}
Environment operator+(Environment one, const Environment& other) {
  one.insert(other.begin(), other.end());
  return one;
}

TEST(ChosenShard, IsTheRankInTheEnvironment) {
  const Environment mpirun = {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}};
  const std::vector<std::pair<Environment, Shard>> cases = {
      {step("2", "4"), {3, 4, "SLURM_PROCID and SLURM_STEP_NUM_TASKS"}},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}, {1, 2, "SLURM_PROCID and SLURM_NTASKS"}},
      {step("0", "1"), {}},  // of one task, in an allocation for several
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}, {}},  // a batch script, outside of a step
      {array("0", "0", "1", "4"), {1, 4, "SLURM_ARRAY_TASK_ID"}},
      {array("4", "1", "1", "4"), {4, 4, "SLURM_ARRAY_TASK_ID"}},
      {array("16", "10", "3", "4"), {3, 4, "SLURM_ARRAY_TASK_ID"}},
      {array("2", "2", "1", "1"), {}},
      {array("1", "0", "1", "3") + step("1", "4"),
       {6, 12, "SLURM_ARRAY_TASK_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS"}},
      {mpirun + Environment{{"PMIX_RANK", "5"}}, {6, 8, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"}},
      {mpirun + step("1", "2"),
       {6, 8, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"}},  // its daemons are Slurm's tasks
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, {1, 3, "PMI_RANK and PMI_SIZE"}},
      {{{"PMIX_RANK", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},  // srun --mpi=pmix
       {2, 2, "SLURM_PROCID and SLURM_NTASKS"}}};
  for (const auto& [environment, shard] : cases) EXPECT_EQ(chosen(environment), shard) << shard.source;
}

TEST(ChosenShard, UnusableVariablesAreNamedWithTheRemedy) {
  const std::string unclear = "the shard is unclear from the environment: ";
  const std::vector<std::pair<Environment, std::string>> cases = {
      {array("7", "1", "1", "3"), "SLURM_ARRAY_TASK_ID is 7, which is not one of 3 tasks from 1 by 1"},  // 1,3,7
      {{{"PMIX_RANK", "1"}}, "PMIX_RANK is set, but no variable has the number of ranks"},
      {{{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}}, "PMI_RANK: 3 is outside 0 to 2"},
      {{{"PMI_RANK", "one"}, {"PMI_SIZE", "3"}}, "PMI_RANK: 'one' is not a whole number"}};
  for (const auto& [environment, error] : cases) {
    const Caught caught = error_of([&] { chosen(environment); });
    EXPECT_EQ(caught.exit, Exit::request);
    EXPECT_EQ(caught.what, unclear + error);
    EXPECT_EQ(caught.hint, "pass --shard i/n, or --shard 1/1 for all cells");
  }
}

TEST(CellsOfAShard, AreLargeAndSmallOnesInTheirOrder) {
  const std::vector<int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128};
  EXPECT_EQ(tokens_of({1, 4}, tokens), (std::vector<int64_t>{1, 128}));
  EXPECT_EQ(tokens_of({2, 4}, tokens), (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(tokens_of({4, 4}, tokens), (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(tokens_of({1, 2}, {5, 100, 7, 50}), (std::vector<int64_t>{5, 100}));
}

TEST(CellsOfAShard, AreEachInOneShardAndNearlyAsMany) {
  for (const size_t cells : {0, 1, 3, 7, 48})
    for (const int64_t count : {1, 2, 5, 8}) {
      std::vector<int64_t> tokens, all;
      for (size_t i = 0; i < cells; ++i) tokens.push_back(static_cast<int64_t>(i * 37 % 53 + 1));
      for (int64_t index = 1; index <= count; ++index) {
        const std::vector<int64_t> mine = tokens_of({index, count}, tokens);
        EXPECT_GE(mine.size(), cells / static_cast<size_t>(count));
        EXPECT_LE(mine.size(), (cells + static_cast<size_t>(count) - 1) / static_cast<size_t>(count));
        all.insert(all.end(), mine.begin(), mine.end());
      }
      std::sort(all.begin(), all.end());
      std::sort(tokens.begin(), tokens.end());
      EXPECT_EQ(all, tokens);
    }
}

TEST(ShardFile, HasThePartBeforeTheEnding) {
  EXPECT_EQ(shard_file({2, 4}, "table.json"), "table.2-of-4.json");
  EXPECT_EQ(shard_file({12, 16}, "out.d/t"), "out.d/t.12-of-16");
  EXPECT_EQ(shard_file({1, 2}, "/a/b.c.jsonl"), "/a/b.c.1-of-2.jsonl");
  EXPECT_EQ(shard_file({1, 2}, "/dev/null"), "/dev/null");
}

}  // namespace
}  // namespace moetune
