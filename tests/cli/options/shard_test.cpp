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

std::string shard_text(const Environment& environment) { return text(chosen(environment)); }

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

TEST(ChosenShard, OfASlurmStepIsItsTask) {
  const Environment step = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(chosen(step), (Shard{3, 4, "SLURM_PROCID and SLURM_STEP_NUM_TASKS"}));
  EXPECT_EQ(shard_text({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}), "1/2");
  // A step of one task in an allocation for several.
  EXPECT_EQ(
      shard_text({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}),
      "1/1");
}

TEST(ChosenShard, OfABatchScriptOutsideOfAStepIsAll) {
  EXPECT_EQ(shard_text({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}), "1/1");
}

TEST(ChosenShard, OfAnArrayIsTheJobsPlace) {
  const auto job = [](const char* task, const char* first, const char* step, const char* count) {
    return Environment{{"SLURM_ARRAY_TASK_ID", task},
                       {"SLURM_ARRAY_TASK_MIN", first},
                       {"SLURM_ARRAY_TASK_STEP", step},
                       {"SLURM_ARRAY_TASK_COUNT", count}};
  };
  EXPECT_EQ(chosen(job("0", "0", "1", "4")), (Shard{1, 4, "SLURM_ARRAY_TASK_ID"}));
  EXPECT_EQ(shard_text(job("4", "1", "1", "4")), "4/4");
  EXPECT_EQ(shard_text(job("16", "10", "3", "4")), "3/4");
  EXPECT_EQ(shard_text(job("2", "2", "1", "1")), "1/1");
  const Caught gap = error_of([&] { chosen(job("7", "1", "1", "3")); });  // --array=1,3,7
  EXPECT_EQ(gap.exit, Exit::request);
  EXPECT_EQ(
      gap.what,
      "the shard is unclear from the environment: SLURM_ARRAY_TASK_ID is 7, which is not one of 3 tasks from 1 by 1");
  EXPECT_EQ(gap.hint, "pass --shard i/n, or --shard 1/1 for all cells");
}

TEST(ChosenShard, TasksOfAnArraysJobsAreCountedThrough) {
  Environment environment = {{"SLURM_ARRAY_TASK_ID", "1"},    {"SLURM_ARRAY_TASK_MIN", "0"},
                             {"SLURM_ARRAY_TASK_COUNT", "3"}, {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "1"},           {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(chosen(environment), (Shard{6, 12, "SLURM_ARRAY_TASK_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS"}));
}

TEST(ChosenShard, OfMpiIsTheRank) {
  EXPECT_EQ(chosen({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "3"}}),
            (Shard{4, 4, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"}));
  EXPECT_EQ(shard_text({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), "1/3");
  // mpirun in a Slurm job: its daemons are the tasks of Slurm's step.
  EXPECT_EQ(shard_text({{"OMPI_COMM_WORLD_RANK", "5"},
                        {"OMPI_COMM_WORLD_SIZE", "8"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "1"},
                        {"SLURM_STEP_NUM_TASKS", "2"}}),
            "6/8");
  // srun --mpi=pmix
  EXPECT_EQ(shard_text({{"PMIX_RANK", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}),
            "2/2");
  EXPECT_EQ(error_of([] {
              chosen({{"PMIX_RANK", "1"}});
            }).what,
            "the shard is unclear from the environment: PMIX_RANK is set, but no variable has the number of ranks");
}

TEST(ChosenShard, UnusableVariablesAreNamedWithTheRemedy) {
  const Caught rank = error_of([] { chosen({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}}); });
  EXPECT_EQ(rank.exit, Exit::request);
  EXPECT_NE(rank.what.find("PMI_RANK"), std::string::npos) << rank.what;
  EXPECT_EQ(rank.hint, "pass --shard i/n, or --shard 1/1 for all cells");
  EXPECT_NE(error_of([] {
              chosen({{"PMI_RANK", "one"}, {"PMI_SIZE", "3"}});
            }).what.find("PMI_RANK"),
            std::string::npos);
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
