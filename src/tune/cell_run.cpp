// Trials of a cell: kept, taken over, and left behind.
#include "tune/cell_run.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace moetune {
namespace {

constexpr int kEndsOfACulprit = 2;

bool is_faster(const Trial& trial, const Trial* best) {
  return trial.status == Status::ok && (!best || trial.measurement.time.value < best->measurement.time.value);
}

const Trial* fastest(const CellRun& state) {
  const Trial* best = nullptr;
  for (const Trial& trial : state.trials)
    if (is_faster(trial, best)) best = &trial;
  return best;
}

bool may_be_the_devices_fault(const Trial& trial) {
  return trial.status == Status::crashed || trial.status == Status::timeout || trial.status == Status::launch_error;
}

}  // namespace

void keep(CellRun& state, Trial trial) {
  const auto [place, fresh] = state.places.try_emplace(trial.candidate, state.trials.size());
  if (fresh)
    state.trials.push_back(std::move(trial));
  else
    state.trials[place->second] = std::move(trial);
  state.order.push_back(place->second);
  const Trial& kept = state.trials[place->second];
  state.strategy->tell(kept);
  if (state.best == &kept)
    state.best = fastest(state);  // with other blocks it may not be the fastest any more
  else if (is_faster(kept, state.best))
    state.best = &kept;
}

void take_over_trials(const Run& run, CellRun& state) {
  std::vector<Trial> trials;
  bool decided = false;
  with_lock(run, [&] {
    trials = value_in(run.shared.before.trials, state.id);
    decided = run.shared.before.final_seconds.contains(state.id);
  });
  for (; !decided && !trials.empty() && may_be_the_devices_fault(trials.back()); trials.pop_back())
    state.again.insert(state.again.begin(), trials.back());
  std::map<Candidate, const Trial*> last;
  for (const Trial& trial : trials) last[trial.candidate] = &trial;
  std::set<Candidate> wanted = {state.fallback};
  if (state.listed) wanted.insert(state.listed->legal.begin(), state.listed->legal.end());
  const auto is_wanted = [&](const Candidate& candidate) {
    return wanted.contains(candidate) || (state.domain && state.domain->has(candidate));
  };
  for (const Trial& trial : trials)
    if (last.at(trial.candidate) == &trial && is_wanted(trial.candidate)) keep(state, trial);
  std::erase_if(state.again, [&](const Trial& trial) { return !is_wanted(trial.candidate); });
  state.planned = std::max(state.planned, static_cast<int64_t>(state.trials.size()));
}

bool is_searched(const Run& run, const CellRun& state) {
  const std::lock_guard lock(run.shared.mutex);
  const JournalContents& before = run.shared.before;
  return state.domain && before.searched.contains(state.id) && before.header.strategy == run.request.strategy &&
         before.header.space == run.request.space.name;
}

void leave(const Run& run, const CellRun& state) {
  std::vector<Trial> trials;  // in the order in which they were last kept
  std::set<size_t> known;
  for (auto place = state.order.rbegin(); place != state.order.rend(); ++place)
    if (known.insert(*place).second) trials.push_back(state.trials[*place]);
  std::ranges::reverse(trials);
  for (const Trial& trial : state.again)  // this device was lost too before it tried them
    if (!state.places.contains(trial.candidate)) trials.push_back(trial);
  const std::lock_guard lock(run.shared.mutex);
  run.shared.before.trials[state.id] = std::move(trials);
  if (state.under_way) ++run.shared.before.unfinished[state.id][text(*state.under_way)];
}

bool is_culprit(const Run& run, const CellRun& state, const Candidate& candidate) {
  const std::lock_guard lock(run.shared.mutex);
  return value_in(value_in(run.shared.before.unfinished, state.id), text(candidate)) >= kEndsOfACulprit;
}

}  // namespace moetune
