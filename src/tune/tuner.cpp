// The loop over cells and candidates. One trial: trial.cpp; the choice of the winner: final.cpp.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "tune/final.h"
#include "tune/strategy.h"
#include "tune/trial.h"
#include "workload/product.h"

namespace moetune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatch = 64;  // compiled at once, ahead of their trials
constexpr std::string_view kOutOfMemory = "out of memory: ";
constexpr int kEndsOfACulprit = 2;
constexpr double kReloadSeconds = 2;  // of a final, and no less than a third of its search
// Seconds that a final waits for a quiet machine: as long as its search took, within these limits. On a virtual machine
// a small cell may keep a slower speed for the whole run; waiting for the faster one must then cost little.
constexpr double kShortestWait = 0.5;
constexpr double kLongestWait = 20;

// What all cells of a run have in common.
struct Run {
  const TuneRequest& request;
  Backend& backend;
  Journal& journal;
  const Replay& before;
  const Listener& listen;
  const std::atomic<bool>& stop;
  Clock::time_point end = Clock::time_point::max();
  Offer offer;
  std::set<std::string> said = {};
};

struct CellRun {
  const Cell* cell = nullptr;
  std::string id;
  Problem problem;
  std::shared_ptr<const Enumeration> enumeration;
  Candidate fallback;        // the default
  int64_t planned = 0;       // trials at most
  std::deque<Trial> trials;  // a deque, because events hold pointers to its elements
  std::set<Candidate> seen;  // tried, or in a batch
  const Trial* best = nullptr;
  Clock::time_point end = Clock::time_point::max();
  bool complete = true;
  Clock::time_point begin = Clock::now();
};

void tell(const Run& run, const Event& event) {
  if (run.listen) run.listen(event);
}

// Each warning is told once a run.
void warn(Run& run, const std::string& text) {
  if (run.said.insert(text).second) tell(run, Note{text});
}

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

// Takes over trials of the resumed run that this run would repeat.
void replay(const Run& run, CellRun& state, Strategy& strategy) {
  const auto found = run.before.trials.find(state.id);
  if (found == run.before.trials.end()) return;
  std::set<Candidate> wanted(state.enumeration->legal.begin(), state.enumeration->legal.end());
  wanted.insert(state.fallback);
  for (const Trial& trial : found->second)
    if (wanted.contains(trial.candidate) && !state.seen.contains(trial.candidate)) keep(state, strategy, trial);
  state.planned = std::max(state.planned, static_cast<int64_t>(state.trials.size()));
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

// Whether earlier runs ended kEndsOfACulprit times while this candidate ran: it is then taken for the reason.
bool is_culprit(const Run& run, const CellRun& state, const Candidate& candidate) {
  const auto cell = run.before.unfinished.find(state.id);
  if (cell == run.before.unfinished.end()) return false;
  const auto times = cell->second.find(text(candidate));
  return times != cell->second.end() && times->second >= kEndsOfACulprit;
}

Trial try_once(const Run& run, const CellRun& state, const Candidate& candidate, const CompileResult& compiled) {
  if (is_culprit(run, state, candidate)) {
    Trial trial;
    trial.candidate = candidate;
    trial.status = Status::crashed;
    trial.reason = "was under way when two earlier runs ended";
    return trial;
  }
  if (compiled.status == Status::ok) {
    tell(run, TrialStarted{&candidate});
    run.journal.started(state.id, candidate);
  }
  const SampleRequest sample{.blocks = run.request.blocks, .block_seconds = run.request.block_seconds};
  const auto best = state.best ? std::optional(state.best->measurement.seconds) : std::nullopt;
  return try_compiled(run.backend, candidate, compiled, sample, best);
}

// Tries the candidates that the strategy names. False where it was stopped early. The default is tried even when the
// time is up.
bool search(const Run& run, CellRun& state, Strategy& strategy) {
  const auto over = [&](const Candidate& next) {
    return run.stop || (Clock::now() >= state.end && next != state.fallback);
  };
  for (;;) {
    std::vector<Candidate> batch = next_batch(state, strategy);
    if (batch.empty()) return true;
    if (over(batch.front())) return false;
    const bool cut = Clock::now() >= state.end && batch.size() > 1;
    if (cut) batch.resize(1);  // the default
    const std::vector<CompileResult> compiled = run.backend.compile(state.problem.shape, batch);
    if (compiled.size() != batch.size()) throw Error(Exit::bug, "not every candidate got a compile result");
    for (size_t i = 0; i < batch.size(); ++i) {
      if (over(batch[i])) return false;
      Trial trial = try_once(run, state, batch[i], compiled[i]);
      run.journal.finished(state.id, trial);
      keep(state, strategy, std::move(trial));
      tell(run,
           TrialFinished{&state.trials.back(), static_cast<int64_t>(state.trials.size()), state.planned, state.best});
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
  const double searched = std::chrono::duration<double>(Clock::now() - state.begin).count();
  const FinalRequest final{.rounds = run.request.final_rounds,
                           .looks = run.request.final_looks,
                           .reload = [&] { run.backend.load(state.problem); },
                           .reload_seconds = std::max(kReloadSeconds, searched / 3),
                           .wait = run.request.final_wait.value_or(std::clamp(searched, kShortestWait, kLongestWait)),
                           .stretch = Clock::now() < run.end,
                           .stop = &run.stop,
                           .sample = {.blocks = 1, .block_seconds = run.request.block_seconds},
                           .fallback = state.fallback};
  entry.complete = state.complete;
  entry.legal =
      std::max(entry.legal, static_cast<int64_t>(state.trials.size()));  // the default may lie outside the space
  entry.measured = static_cast<int64_t>(state.trials.size());
  entry.failed = std::count_if(state.trials.begin(), state.trials.end(),
                               [](const Trial& trial) { return trial.status != Status::ok; });
  const auto note = [&](const std::string& text) { warn(run, text); };
  if (!decide(entry, state.trials, run.backend, state.problem.shape, final, note)) {
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

// Nothing where the run was stopped before the first trial.
std::optional<Entry> tune_cell(Run& run, size_t index, size_t count) {
  CellRun state = open_cell(run, run.request.cells[index]);
  const auto strategy = make_strategy(run.request.strategy, state.enumeration->legal, run.request.seed);
  replay(run, state, *strategy);
  if (run.end != Clock::time_point::max())
    state.end = Clock::now() + (run.end - Clock::now()) / static_cast<int64_t>(count - index);
  tell(run, CellStarted{index, count, &state.problem, state.cell, state.enumeration.get(), state.planned,
                        static_cast<int64_t>(state.trials.size())});
  Entry entry = new_entry(state);
  if (!load(run, state, entry)) return entry;
  state.complete = search(run, state, *strategy);
  if (state.trials.empty()) return std::nullopt;
  finish(run, state, entry);
  return entry;
}

}  // namespace

bool lacks_memory(const Entry& entry) { return entry.skipped.starts_with(kOutOfMemory); }

int64_t drawn_candidates(const TuneRequest& request) {
  return request.strategy == "random" ? request.max_candidates : 0;
}

TunedTable tune(const TuneRequest& request, Backend& backend, Journal& journal, const Replay& before,
                const Listener& listen, const std::atomic<bool>& stop,
                const std::function<void(const TunedTable&)>& after_cell) {
  Run run{.request = request,
          .backend = backend,
          .journal = journal,
          .before = before,
          .listen = listen,
          .stop = stop,
          .offer = Offer(request.space, backend.device(), drawn_candidates(request))};
  if (request.time_budget > 0)
    run.end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.time_budget));
  TunedTable table;
  table.tool = request.tool;
  table.device = backend.device();
  table.environment = backend.environment();
  const size_t count = request.cells.size();
  for (size_t i = 0; i < count && !stop; ++i) {
    if (i > 0 && Clock::now() >= run.end) {
      warn(run, fmt::format("the time budget is spent: {} of {} cells are not begun; run again with --resume and a "
                            "larger --time-budget",
                            count - i, count));
      break;
    }
    std::optional<Entry> entry = tune_cell(run, i, count);
    if (!entry) break;
    table.entries.push_back(std::move(*entry));
    tell(run, CellFinished{&table.entries.back()});
    if (after_cell) after_cell(table);
  }
  return table;
}

}  // namespace moetune
