// Recorded blocks in place of a device.
#include "tune/search/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tune/final.h"
#include "tune/search/strategy.h"

namespace moetune {
namespace {

constexpr double kIntervalSds = 1.96;          // half a 95 % interval
constexpr uint64_t kRehearsalStream = 0x4e4e;  // of random numbers

using Recorded = std::map<Candidate, Trial>;  // the last trial of each

Recorded recorded_of(const JournalContents& journal, const std::string& cell) {
  Recorded result;
  const auto found = journal.trials.find(cell);
  if (found == journal.trials.end()) return result;
  for (const Trial& trial : found->second) {
    if (!trial.candidate.foreign.empty())
      throw request_error(fmt::format("{}: {} is of a pack that is missing here, or of another build of it", cell,
                                      trial.candidate.variant->name),
                          "name the folder of the pack with --pack");
    result[trial.candidate] = trial;
  }
  return result;
}

std::set<Candidate> candidates_of(const Recorded& recorded) {
  std::set<Candidate> candidates;
  for (const auto& [candidate, trial] : recorded) candidates.insert(candidate);
  return candidates;
}

// The space of all knob values that recorded candidates have.
SearchSpace space_of(const Recorded& recorded) {
  std::map<VariantPtr, std::vector<std::set<int>>> values;
  SearchSpace space{.name = "recorded", .variants = {}};
  for (const auto& [candidate, trial] : recorded) {
    std::vector<std::set<int>>& sets = values[candidate.variant];
    if (sets.empty()) space.variants.push_back({.variant = candidate.variant, .values = {}});
    sets.resize(candidate.values.size());
    for (size_t i = 0; i < candidate.values.size(); ++i) sets[i].insert(candidate.values[i]);
  }
  for (VariantSpace& part : space.variants) {
    const std::vector<std::set<int>>& sets = values[part.variant];
    for (size_t i = 0; i < sets.size(); ++i)
      part.values.emplace_back(part.variant->knobs[i].name, std::vector<int>(sets[i].begin(), sets[i].end()));
  }
  return space;
}

Block drawn(const Trial& trial, Random& random) {
  if (!trial.blocks.empty()) return trial.blocks[random.below(trial.blocks.size())];
  const Estimate& time = trial.measurement.time;
  const double sd = log_half_width(time) / kIntervalSds * std::sqrt(static_cast<double>(time.samples));
  return {.seconds = time.value * std::exp(sd * random.normal()), .launches = 1};
}

// One recorded cell, the same in all runs.
struct Stage {
  const Problem problem;
  const DeviceInfo& device;
  Recorded recorded;
  SearchSpace space = space_of(recorded);
  std::shared_ptr<const Domain> domain =
      std::make_shared<const Domain>(space, problem.shape, device, candidates_of(recorded));
  std::shared_ptr<const Enumeration> listed = {};
  Candidate fallback = {};
};

struct Found {
  Candidate winner;
  int64_t candidates = 0, blocks = 0;
};

// One run. Of the three candidates that were the fastest in it and the default, the winner is the one with the least
// recorded time.
Found search(const Stage& stage, const RehearsalRequest& request, const WarmStart& warm, uint64_t seed) {
  const auto strategy = make_strategy(request.strategy, {.problem = stage.problem,
                                                         .device = stage.device,
                                                         .fallback = stage.fallback,
                                                         .listed = stage.listed,
                                                         .domain = stage.domain,
                                                         .warm = warm,
                                                         .seed = seed});
  Random random(seed, kRehearsalStream);
  std::map<Candidate, Trial> told;
  Found found;
  while (const std::optional<Ask> next = strategy->ask()) {
    const bool fresh = !told.contains(next->candidate);
    if (fresh && request.max_candidates > 0 && std::ssize(told) >= request.max_candidates) break;
    const Trial& source = stage.recorded.at(next->candidate);
    Trial& trial = told[next->candidate];
    trial.candidate = source.candidate, trial.status = source.status;
    if (trial.status == Status::ok) {
      for (int i = 0; i < next->blocks; ++i) trial.blocks.push_back(drawn(source, random));
      trial.measurement = summarise(trial.blocks);
      found.blocks += next->blocks;
    }
    strategy->tell(trial);
  }
  found.candidates = std::ssize(told);
  std::vector<const Trial*> right;
  for (const auto& [candidate, trial] : told)
    if (trial.status == Status::ok) right.push_back(&trial);
  std::ranges::stable_sort(right, {}, [](const Trial* trial) { return trial->measurement.time.value; });
  const auto is_default = [&](const Trial* trial) { return trial->candidate == stage.fallback; };
  if (right.size() > kFinalists)
    right.erase(std::remove_if(right.begin() + kFinalists, right.end(), std::not_fn(is_default)), right.end());
  const auto best = std::ranges::min_element(
      right, {}, [&](const Trial* trial) { return stage.recorded.at(trial->candidate).measurement.time.value; });
  if (best != right.end()) found.winner = (*best)->candidate;
  return found;
}

// An entry as a run leaves it, as far as a warm start reads it.
Entry entry_of(const Cell& cell, const Problem& problem, const Candidate& winner) {
  Entry entry;
  entry.cell = cell;
  entry.figures = figures(problem.routing);
  entry.candidate = winner;
  return entry;
}

std::optional<RehearsedCell> prepare(const Cell& cell, Stage& stage) {
  RehearsedCell result;
  result.cell = cell;
  for (const auto& [candidate, trial] : stage.recorded) {
    if (trial.status != Status::ok) continue;
    ++result.recorded;
    if (result.best_seconds == 0 || trial.measurement.time.value < result.best_seconds)
      result.best = candidate, result.best_seconds = trial.measurement.time.value;
  }
  if (result.recorded == 0) return std::nullopt;
  auto listed = std::make_shared<Enumeration>();
  for (const auto& [candidate, trial] : stage.recorded) listed->legal.push_back(candidate);
  stage.listed = listed;
  const Candidate wanted = default_candidate(stage.space, stage.problem, stage.device);
  const auto found = stage.recorded.find(wanted);
  const bool has_default = found != stage.recorded.end() && found->second.status == Status::ok;
  result.default_loss = has_default ? found->second.measurement.time.value / result.best_seconds - 1
                                    : std::numeric_limits<double>::infinity();
  stage.fallback = has_default ? wanted : stage.domain->nearest(wanted).value_or(result.best);
  return result;
}

}  // namespace

std::vector<RehearsedCell> rehearse(const JournalContents& journal, const RehearsalRequest& request) {
  std::vector<RehearsedCell> results;
  std::vector<std::vector<Entry>> before(static_cast<size_t>(request.runs));  // of each run
  for (const Cell& cell : journal.header.cells) {
    Stage stage{
        .problem = make_problem(cell), .device = journal.header.device, .recorded = recorded_of(journal, id(cell))};
    std::optional<RehearsedCell> result = prepare(cell, stage);
    if (!result) continue;
    for (size_t run = 0; run < before.size(); ++run) {
      const auto entries = request.warm_start ? pointers_to(before[run]) : std::vector<const Entry*>();
      const Found found = search(stage, request, warm_start(stage.problem, entries), run);
      result->candidates.push_back(found.candidates);
      result->blocks.push_back(found.blocks);
      const auto winner = stage.recorded.find(found.winner);
      result->losses.push_back(winner == stage.recorded.end()
                                   ? std::numeric_limits<double>::infinity()
                                   : winner->second.measurement.time.value / result->best_seconds - 1);
      if (winner != stage.recorded.end()) before[run].push_back(entry_of(cell, stage.problem, found.winner));
    }
    results.push_back(std::move(*result));
  }
  return results;
}

}  // namespace moetune
