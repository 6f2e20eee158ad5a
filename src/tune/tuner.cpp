// The loop over the candidates of a cell. One trial: trial.cpp; the choice of the winner: final.cpp; the cells:
// run.cpp.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "tune/final.h"
#include "tune/run.h"
#include "tune/strategy.h"
#include "tune/trial.h"
#include "workload/product.h"

namespace moetune {
namespace {

constexpr int64_t kBatch = 64;  // compiled at once, ahead of their trials
constexpr std::string_view kOutOfMemory = "out of memory: ";
constexpr int kEndsOfACulprit = 2;
constexpr double kReloadSeconds = 2;  // of a final, and no less than a third of its search
// Seconds that a final waits for a quiet machine: as long as its search took, within these limits. On a virtual machine
// a small cell may keep a slower speed for the whole run; waiting for the faster one must then cost little.
constexpr double kShortestWait = 0.5;
constexpr double kLongestWait = 20;

struct CellRun {
  const Cell* cell = nullptr;
  std::string id;
  Problem problem;
  std::shared_ptr<const Enumeration> enumeration;
  Candidate fallback;                       // the default
  int64_t planned = 0;                      // trials at most
  std::deque<Trial> trials;                 // a deque, because events hold pointers to its elements
  std::set<Candidate> seen;                 // tried, or in a batch
  std::optional<Candidate> under_way = {};  // started and not finished
  const Trial* best = nullptr;
  Clock::time_point end = Clock::time_point::max();
  bool complete = true;
  Clock::time_point begin = Clock::now();
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

CellRun open_cell(Run& run, const Cell& cell) {
  CellRun state;
  state.cell = &cell;
  state.id = id(cell);
  state.problem = make_problem(cell);
  state.enumeration = run.offer.to(cell.shape, run.request.seed);
  state.fallback = default_candidate(run.request.space, state.problem, run.backend.device());
  const std::vector<Candidate>& legal = state.enumeration->legal;
  const bool extra = std::find(legal.begin(), legal.end(), state.fallback) == legal.end();
  state.planned = static_cast<int64_t>(legal.size()) + (extra ? 1 : 0);
  if (run.request.max_candidates > 0) state.planned = std::min(state.planned, run.request.max_candidates);
  return state;
}

Entry new_entry(const CellRun& state) {
  Entry entry;
  entry.cell = *state.cell;
  entry.m_sizes = state.problem.routing.m_sizes;
  entry.figures = figures(state.problem.routing);
  const Product product = product_of(state.problem);
  entry.flops = flops(product);
  entry.bytes = bytes(product);
  entry.legal = static_cast<int64_t>(state.enumeration->legal.size());
  return entry;
}

void keep(CellRun& state, Strategy& strategy, Trial trial) {
  state.seen.insert(trial.candidate);
  state.trials.push_back(std::move(trial));
  const Trial& kept = state.trials.back();
  const bool right = kept.status == Status::ok;
  strategy.tell(kept.candidate, right ? std::optional(kept.measurement.seconds) : std::nullopt);
  if (right && (!state.best || kept.measurement.seconds < state.best->measurement.seconds)) state.best = &kept;
}

// Takes over trials of the resumed run, and of lost devices, that this run would repeat. Of a candidate's trials the
// last counts: it was tried again.
void replay(const Run& run, CellRun& state, Strategy& strategy) {
  std::vector<Trial> trials;
  in_turn(run, [&] {
    const auto found = run.shared.before.trials.find(state.id);
    if (found != run.shared.before.trials.end()) trials = found->second;
  });
  std::map<Candidate, const Trial*> last;
  for (const Trial& trial : trials) last[trial.candidate] = &trial;
  std::set<Candidate> wanted(state.enumeration->legal.begin(), state.enumeration->legal.end());
  wanted.insert(state.fallback);
  for (const Trial& trial : trials)
    if (wanted.contains(trial.candidate) && last.at(trial.candidate) == &trial) keep(state, strategy, trial);
  state.planned = std::max(state.planned, static_cast<int64_t>(state.trials.size()));
}

bool may_be_the_devices_fault(const Trial& trial) {
  return trial.status == Status::crashed || trial.status == Status::timeout || trial.status == Status::launch_error;
}

// Leaves the cell to another device. The faults that came last may be those of the lost device: they are tried again.
void leave(const Run& run, const CellRun& state) {
  std::vector<Trial> trials(state.trials.begin(), state.trials.end());
  while (!trials.empty() && may_be_the_devices_fault(trials.back())) trials.pop_back();
  const std::lock_guard lock(run.shared.mutex);
  run.shared.before.trials[state.id] = std::move(trials);
  if (state.under_way) ++run.shared.before.unfinished[state.id][text(*state.under_way)];
}

std::vector<Candidate> next_batch(CellRun& state, Strategy& strategy) {
  const int64_t room = std::min(kBatch, state.planned - static_cast<int64_t>(state.trials.size()));
  std::vector<Candidate> batch;
  if (room > 0 && state.seen.insert(state.fallback).second) batch.push_back(state.fallback);
  while (static_cast<int64_t>(batch.size()) < room) {
    const std::optional<Candidate> candidate = strategy.ask();
    if (!candidate) break;
    if (state.seen.insert(*candidate).second) batch.push_back(*candidate);
  }
  return batch;
}

// What is likely to be compiled after the batches so far; the order of a random strategy is not known ahead.
std::vector<Candidate> likely_next(const Run& run, const CellRun& state) {
  std::vector<Candidate> likely;
  if (run.request.strategy != "exhaustive") return likely;
  const int64_t room = std::min(kBatch, state.planned - static_cast<int64_t>(state.seen.size()));
  for (const Candidate& candidate : state.enumeration->legal) {
    if (static_cast<int64_t>(likely.size()) >= room) break;
    if (!state.seen.contains(candidate)) likely.push_back(candidate);
  }
  return likely;
}

// Whether earlier runs ended kEndsOfACulprit times while this candidate ran: it is then taken for the reason.
bool is_culprit(const Run& run, const CellRun& state, const Candidate& candidate) {
  const std::lock_guard lock(run.shared.mutex);
  const auto cell = run.shared.before.unfinished.find(state.id);
  if (cell == run.shared.before.unfinished.end()) return false;
  const auto times = cell->second.find(text(candidate));
  return times != cell->second.end() && times->second >= kEndsOfACulprit;
}

Trial try_once(const Run& run, CellRun& state, const Candidate& candidate, const CompileResult& compiled) {
  if (is_culprit(run, state, candidate)) {
    Trial trial;
    trial.candidate = candidate;
    trial.status = Status::crashed;
    trial.reason = "was under way when two earlier runs ended";
    return trial;
  }
  if (compiled.status == Status::ok) {
    tell(run, TrialStarted{&candidate});
    in_turn(run, [&] { run.shared.journal.started(state.id, candidate); });
    state.under_way = candidate;
  }
  const SampleRequest sample{
      .blocks = run.request.blocks, .block_seconds = run.request.block_seconds, .regime = run.request.regime};
  const auto best = state.best ? std::optional(state.best->measurement.seconds) : std::nullopt;
  const Clock::time_point begin = Clock::now();
  Trial trial = try_compiled(run.backend, candidate, compiled, sample, best);
  trial.took = seconds_since(begin);
  return trial;
}

// Tries the candidates that the strategy names. False where it was stopped early. The default is tried even when the
// time is up.
bool search(const Run& run, CellRun& state, Strategy& strategy) {
  const auto over = [&](const Candidate& next) {
    return stopped(run) || (Clock::now() >= state.end && next != state.fallback);
  };
  for (;;) {
    std::vector<Candidate> batch = next_batch(state, strategy);
    if (batch.empty()) return true;
    if (over(batch.front())) return false;
    const bool cut = Clock::now() >= state.end && batch.size() > 1;
    if (cut) batch.resize(1);  // the default
    const Clock::time_point begin = Clock::now();
    const std::vector<CompileResult> compiled = run.backend.compile(state.problem.shape, batch);
    const double compiling = seconds_since(begin) / static_cast<double>(batch.size());
    if (compiled.size() != batch.size()) throw Error(Exit::bug, "not every candidate got a compile result");
    run.backend.compile_ahead(state.problem.shape, likely_next(run, state));
    for (size_t i = 0; i < batch.size(); ++i) {
      if (over(batch[i])) return false;
      Trial trial = try_once(run, state, batch[i], compiled[i]);
      trial.took += compiling;
      in_turn(run, [&] { run.shared.journal.finished(state.id, trial); });
      state.under_way.reset();
      keep(state, strategy, std::move(trial));
      tell(run, TrialFinished{&state.trials.back(), static_cast<int64_t>(state.trials.size()), state.planned,
                              state.best, run.device});
    }
    if (cut) return false;
  }
}

std::string no_winner(const CellRun& state) {
  for (const Trial& trial : state.trials)
    if (trial.status != Status::ok)
      return fmt::format("no candidate is right; {}: {}: {}", text(trial.candidate), name(trial.status), trial.reason);
  return "no candidate could be timed again in the final";
}

void finish(Run& run, const CellRun& state, Entry& entry) {
  const Clock::time_point begin = Clock::now();
  const double searched = seconds_since(state.begin);
  const FinalRequest final{
      .rounds = run.request.final_rounds,
      .looks = run.request.final_looks,
      .reload = [&] { run.backend.load(state.problem); },
      .reload_seconds = std::max(kReloadSeconds, searched / 3),
      .wait = run.request.final_wait.value_or(std::clamp(searched, kShortestWait, kLongestWait)),
      .stretch = Clock::now() < run.shared.end,
      .stop = &run.shared.stop,
      .sample = {.blocks = 1, .block_seconds = run.request.block_seconds, .regime = run.request.regime},
      .fallback = state.fallback};
  entry.complete = state.complete;
  entry.legal =
      std::max(entry.legal, static_cast<int64_t>(state.trials.size()));  // the default may lie outside the space
  entry.measured = static_cast<int64_t>(state.trials.size());
  entry.failed = std::count_if(state.trials.begin(), state.trials.end(),
                               [](const Trial& trial) { return trial.status != Status::ok; });
  const auto note = [&](const std::string& text) { warn(run, text); };
  const bool won = decide(entry, state.trials, run.backend, state.problem.shape, final, note);
  in_turn(run, [&] { run.shared.journal.decided(state.id, seconds_since(begin)); });
  if (!won) {
    entry.skipped = no_winner(state);
    return;
  }
  entry.occupancy = tile_occupancy(product_of(state.problem), find_value(entry.candidate, "block_m").value_or(1));
}

bool load(Run& run, const CellRun& state, Entry& entry) {
  try {
    run.backend.load(state.problem);
    return true;
  } catch (const OutOfMemory& error) {
    entry.skipped = fmt::format("{}{}", kOutOfMemory, error.what());
    return false;
  }
}

// Seconds are divided among the cells that remain, and devices work side by side.
void set_end(const Run& run, CellRun& state) {
  const Shared& shared = run.shared;
  if (shared.end == Clock::time_point::max()) return;
  const auto cells = static_cast<int64_t>(shared.queue.left() + 1), devices = static_cast<int64_t>(shared.devices);
  const Clock::duration left = shared.end - Clock::now();
  state.end = Clock::now() + (cells > devices ? left * devices / cells : left);
}

}  // namespace

std::optional<Entry> tune_cell(Run& run, size_t index) {
  CellRun state = open_cell(run, run.request.cells[index]);
  const auto strategy = make_strategy(run.request.strategy, state.enumeration->legal, run.request.seed);
  replay(run, state, *strategy);
  set_end(run, state);
  tell(run, CellStarted{index, run.request.cells.size(), &state.problem, state.cell, state.enumeration.get(),
                        state.planned, static_cast<int64_t>(state.trials.size()), run.device});
  Entry entry = new_entry(state);
  try {
    if (!load(run, state, entry)) return entry;
    state.complete = search(run, state, *strategy);
    if (state.trials.empty()) return std::nullopt;
    finish(run, state, entry);
  } catch (...) {
    leave(run, state);
    throw;
  }
  return entry;
}

bool lacks_memory(const Entry& entry) { return entry.skipped.starts_with(kOutOfMemory); }

int64_t drawn_candidates(const TuneRequest& request) {
  return request.strategy == "random" ? request.max_candidates : 0;
}

}  // namespace moetune
