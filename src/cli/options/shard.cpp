// Ranks from the option or the environment, and how cells are dealt.
#include "cli/options/shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/system/file.h"
#include "base/text/units.h"

namespace moetune {
namespace {

constexpr int64_t kMaxShards = 1'000'000;

// One of `count` tasks; `rank` counts from 0.
struct Task {
  int64_t rank = 0, count = 1;
  std::string source;
};

// Variables that hold a rank and the number of ranks, by who sets them; `needs` must be set too.
struct Launcher {
  const char *rank, *count, *needs;
};
// Those of MPI come first: inside of mpirun, Slurm's are those of a daemon. In a batch script, outside of srun, Slurm
// sets SLURM_PROCID and SLURM_NTASKS too, but there is no step.
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
                                   {"PMI_RANK", "PMI_SIZE", nullptr},
                                   {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
                                   {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}};

Error unusable(const std::string& sentence) {
  return request_error(fmt::format("the shard is unclear from the environment: {}", sentence),
                       "pass --shard i/n, or --shard 1/1 for all cells");
}

std::optional<int64_t> read(const Variables& variable, const char* name, int64_t low, int64_t high) {
  const char* text = variable(name);
  if (!text || !*text) return std::nullopt;
  try {
    return parse_integer(text, name, low, high);
  } catch (const Error& error) {
    throw unusable(error.what());
  }
}

bool is_set(const Variables& variable, const char* name) {
  const char* text = variable(name);
  return text && *text;
}

Task launched_task(const Variables& variable) {
  for (const Launcher& launcher : kLaunchers) {
    if (!is_set(variable, launcher.rank) || !is_set(variable, launcher.count)) continue;
    if (launcher.needs && !is_set(variable, launcher.needs)) continue;
    const int64_t count = read(variable, launcher.count, 1, kMaxShards).value();
    return {read(variable, launcher.rank, 0, count - 1).value(), count,
            fmt::format("{} and {}", launcher.rank, launcher.count)};
  }
  if (is_set(variable, "PMIX_RANK") && !is_set(variable, "SLURM_STEP_ID"))
    throw unusable("PMIX_RANK is set, but no variable has the number of ranks");
  return {};
}

// A job of an array. A single one, such as one that is submitted again by its number, has all cells.
Task array_task(const Variables& variable) {
  const auto value = [&](const char* name) { return read(variable, name, 0, INT32_MAX); };
  const auto task = value("SLURM_ARRAY_TASK_ID"), first = value("SLURM_ARRAY_TASK_MIN");
  const auto count = read(variable, "SLURM_ARRAY_TASK_COUNT", 1, kMaxShards);
  const int64_t step = read(variable, "SLURM_ARRAY_TASK_STEP", 1, INT32_MAX).value_or(1);
  if (!task || !first || !count || *count == 1) return {};
  const int64_t distance = *task - *first;
  if (distance < 0 || distance % step != 0 || distance / step >= *count)
    throw unusable(fmt::format("SLURM_ARRAY_TASK_ID is {}, which is not one of {} tasks from {} by {}", *task, *count,
                               *first, step));
  return {distance / step, *count, "SLURM_ARRAY_TASK_ID"};
}

Shard parse_shard(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos)
    throw request_error(fmt::format("--shard {}: expected i/n", text), "such as --shard 2/4 for the second of four");
  const int64_t count = parse_integer(text.substr(slash + 1), "--shard i/n: n", 1, kMaxShards);
  return {.index = parse_integer(text.substr(0, slash), "--shard i/n: i", 1, count), .count = count};
}

}  // namespace

Shard choose_shard(const std::string& option, const Variables& variable) {
  if (!option.empty()) return parse_shard(option);
  const Task job = array_task(variable), task = launched_task(variable);
  Shard shard{.index = job.rank * task.count + task.rank + 1, .count = job.count * task.count};
  if (shard.count == 1) return shard;
  if (job.count > 1) shard.source = job.source;
  if (task.count > 1) shard.source += (shard.source.empty() ? "" : ", ") + task.source;
  return shard;
}

std::vector<Cell> cells_of(const Shard& shard, const std::vector<Cell>& cells) {
  const std::vector<size_t> order = by_work(cells);
  const auto count = static_cast<size_t>(shard.count), mine = static_cast<size_t>(shard.index - 1);
  std::vector<size_t> chosen;
  for (size_t place = 0; place < order.size(); ++place) {
    const size_t turn = place % count, to = place / count % 2 == 0 ? turn : count - 1 - turn;
    if (to == mine) chosen.push_back(order[place]);
  }
  std::ranges::sort(chosen);
  return mapped(chosen, [&](size_t i) { return cells[i]; });
}

std::filesystem::path shard_file(const Shard& shard, const std::filesystem::path& path) {
  if (is_there(path) && !is_file(path)) return path;
  const std::string name =
      fmt::format("{}.{}-of-{}{}", path.stem().string(), shard.index, shard.count, path.extension().string());
  return path.parent_path() / name;
}

std::string text(const Shard& shard) { return fmt::format("{}/{}", shard.index, shard.count); }

}  // namespace moetune
