// The loop over the candidates of a cell. One trial: trial.cpp; the choice of the winner: final.cpp; the cells:
// tuner.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "tune/cell_run.h"
#include "tune/final.h"
#include "tune/run.h"
#include "tune/search/strategy.h"
#include "tune/trial.h"
#include "tune/tuner.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

constexpr int64_t kBatch = 64;  // compiled at once, ahead of their trials
constexpr std::string_view kOutOfMemory = "out of memory: ";
constexpr double kReloadSeconds = 2;  // looks of a final begin within this, or within a third of its search
// Seconds that a final waits for a quiet machine: as long as its search took, within these limits. On a virtual machine
// a small cell may stay slow for the whole run; waiting must then cost little.
constexpr double kShortestWait = 0.5;
constexpr double kLongestWait = 20;

// The winners of cells before it, of this run and of other runs.
WarmStart warm_start_of(const Run& run, const Problem& problem) {
  std::vector<const Entry*> entries;
  WarmStart start;
  with_lock(run, [&] {
    for (const std::optional<Entry>& entry : run.shared.entries)
      if (entry) entries.push_back(&*entry);
    for (const Entry& entry : run.request.warm_start) entries.push_back(&entry);
    start = warm_start(problem, entries);
  });
  return start;
}

CellRun open_cell(Run& run, const Cell& cell) {
  CellRun state;
  const TuneRequest& request = run.request;
  state.cell = &cell;
  state.id = id(cell);
  state.problem = make_problem(cell);
  const DeviceInfo& device = run.backend.device();
  if (lists_candidates(request.strategy))
    state.listed = run.source.candidates(cell.shape, request.seed);
  else
    state.domain = std::make_shared<const Domain>(request.space, cell.shape, device);
  state.fallback = default_candidate(request.space, state.problem, device);
  state.strategy = make_strategy(request.strategy, {.problem = state.problem,
                                                    .device = device,
                                                    .fallback = state.fallback,
                                                    .listed = state.listed,
                                                    .domain = state.domain,
                                                    .warm = warm_start_of(run, state.problem),
                                                    .blocks = request.blocks,
                                                    .seed = request.seed});
  state.planned = state.strategy->max_candidates();
  if (request.max_candidates > 0) state.planned = std::min(state.planned, request.max_candidates);
  return state;
}

Entry new_entry(const CellRun& state) {
  const Product product = product_of(state.problem);
  Entry entry{.cell = *state.cell,
              .m_sizes = state.problem.routing.m_sizes,
              .figures = figures(state.problem.routing),
              .flops = flops(product),
              .bytes = bytes(product)};
  if (state.listed) entry.legal = std::ssize(state.listed->legal);
  return entry;
}

// Candidates that are not compiled yet.
std::vector<Candidate> new_of(const CellRun& state, const std::deque<Ask>& asks) {
  std::vector<Candidate> fresh;
  for (const Ask& ask : asks)
    if (!state.places.contains(ask.candidate)) fresh.push_back(ask.candidate);
  return fresh;
}

// Adds what the strategy asks for, with no more candidates than are planned. True where there is more to try now.
bool ask_more(CellRun& state, std::deque<Ask>& waiting) {
  const size_t before = waiting.size();
  int64_t room = state.planned - std::ssize(state.trials) - std::ssize(new_of(state, waiting));
  while (!state.cut && std::ssize(waiting) < kBatch) {
    std::optional<Ask> next = state.strategy->ask();
    if (!next) break;
    state.cut = !state.places.contains(next->candidate) && room-- <= 0;
    if (!state.cut) waiting.push_back(std::move(*next));
  }
  return waiting.size() > before;
}

std::map<Candidate, CompileResult> compile(const Run& run, const CellRun& state, std::span<const Candidate> fresh) {
  std::map<Candidate, CompileResult> results;
  if (fresh.empty()) return results;
  const std::vector<CompileResult> compiled = run.backend.compile(state.problem.shape, fresh);
  if (compiled.size() != fresh.size()) throw Error(Exit::bug, "not every candidate got a compile result");
  for (size_t i = 0; i < fresh.size(); ++i) results[fresh[i]] = compiled[i];
  return results;
}

// The first candidates of the next cell, if it has the same shape. Results of this cell may change them.
std::vector<Candidate> likely_first(Run& run, const CellRun& state) {
  const std::optional<size_t> next = run.shared.queue.coming();
  if (!next || lists_candidates(run.request.strategy)) return {};
  const Cell& cell = run.request.cells[*next];
  if (cell.shape != state.problem.shape) return {};
  const CellRun coming = open_cell(run, cell);
  return coming.strategy->likely(kBatch);
}

// Compiles in the background: the new candidates, then those likely to be tried next, then the first of the next cell.
// False if the backend cannot do that.
bool compile_ahead(Run& run, CellRun& state, const std::deque<Ask>& waiting) {
  const std::vector<Candidate> next = new_of(state, waiting);
  const int64_t room = state.planned - std::ssize(state.trials) - std::ssize(next);
  std::vector<Candidate> later = state.strategy->likely(static_cast<size_t>(std::clamp<int64_t>(room, 0, kBatch)));
  if (state.coming) later.insert(later.end(), state.coming->begin(), state.coming->end());
  if (!run.backend.compile_ahead(state.problem.shape, next, later)) return false;
  if (state.coming) return true;
  state.coming = likely_first(run, state);  // found while the others are compiled
  later.insert(later.end(), state.coming->begin(), state.coming->end());
  return state.coming->empty() || run.backend.compile_ahead(state.problem.shape, next, later);
}

// Takes the next candidate to try: the default first, then one that is compiled. Waits until one is.
Ask take_ready(const Run& run, const CellRun& state, std::deque<Ask>& waiting) {
  auto ready = waiting.begin();
  if (!state.trials.empty()) {
    ready = std::ranges::find_if(waiting, [&](const Ask& ask) { return state.places.contains(ask.candidate); });
    if (ready == waiting.end())
      ready = waiting.begin() +
              static_cast<std::ptrdiff_t>(run.backend.first_compiled(state.problem.shape, new_of(state, waiting)));
  }
  Ask ask = std::move(*ready);
  waiting.erase(ready);
  return ask;
}

void start(const Run& run, CellRun& state, const Candidate& candidate) {
  emit(run, TrialStarted{&candidate});
  with_lock(run, [&] { run.shared.journal.started(state.id, candidate); });
  state.under_way = candidate;
}

SampleRequest sample_of(const Run& run, const Ask& ask) {
  return {.blocks = ask.blocks, .block_seconds = run.request.block_seconds, .regime = run.request.regime};
}

Trial try_once(const Run& run, CellRun& state, const Ask& ask, const CompileResult& compiled) {
  if (is_culprit(run, state, ask.candidate))
    return {
        .candidate = ask.candidate, .status = Status::crashed, .reason = "was under way when two earlier runs ended"};
  if (compiled.status == Status::ok) start(run, state, ask.candidate);
  const auto best = state.best ? std::optional(state.best->measurement.time.value) : std::nullopt;
  return try_compiled(run.backend, ask.candidate, compiled, sample_of(run, ask), best);
}

Trial try_or_repeat(const Run& run, CellRun& state, const Ask& ask,
                    const std::map<Candidate, CompileResult>& compiled) {
  if (const auto known = state.places.find(ask.candidate); known != state.places.end()) {
    start(run, state, ask.candidate);
    return measure_more(run.backend, state.trials[known->second], sample_of(run, ask));
  }
  if (const auto found = compiled.find(ask.candidate); found != compiled.end())
    return try_once(run, state, ask, found->second);
  return try_once(run, state, ask, compile(run, state, std::span(&ask.candidate, 1)).at(ask.candidate));
}

// Makes the trials of a strategy. False if it was stopped early. One trial is made even when the time is up, so that a
// run that is resumed again and again ends. If the backend compiles ahead, the strategy is asked after each trial and
// compiled candidates go first; otherwise a batch is compiled, then tried.
bool search(Run& run, CellRun& state) {
  bool tried = false;
  const auto over = [&] { return stopped(run) || (Clock::now() >= state.end && tried); };
  std::deque<Ask> waiting;
  if (!state.listed)  // a list holds them anyway
    for (const Trial& trial : state.again) waiting.push_back({trial.candidate, run.request.blocks});
  std::map<Candidate, CompileResult> compiled;
  bool ahead = false, dropped = false;
  double compiling = 0;  // seconds for each of a batch
  for (;;) {
    if ((ahead || waiting.empty()) && ask_more(state, waiting) && !over()) {
      const Clock::time_point begin = Clock::now();
      dropped = begin >= state.end && waiting.size() > 1;
      if (dropped) waiting.resize(1);  // the default
      ahead = compile_ahead(run, state, waiting);
      compiled = ahead ? std::map<Candidate, CompileResult>{} : compile(run, state, new_of(state, waiting));
      compiling = ahead ? 0 : seconds_since(begin) / static_cast<double>(waiting.size());
    }
    if (waiting.empty()) return !dropped;
    if (over()) return false;
    const Clock::time_point begin = Clock::now();
    const Ask ask = ahead ? take_ready(run, state, waiting) : std::move(waiting.front());
    if (!ahead) waiting.pop_front();
    Trial trial = try_or_repeat(run, state, ask, compiled);
    tried = true;
    trial.took = seconds_since(begin) + compiling;
    with_lock(run, [&] { run.shared.journal.finished(state.id, trial); });
    state.under_way.reset();
    keep(state, std::move(trial));
    const Trial& kept = state.trials[state.places.at(ask.candidate)];
    emit(run, TrialFinished{&kept, std::ssize(state.trials), state.planned, state.best, run.device});
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
      .certain = run.request.final_stretch ? std::optional(StopWhenCertain{}) : std::nullopt,
      .early = {.stop = &run.shared.stop, .end = run.shared.end},
      .sample = {.blocks = 1, .block_seconds = run.request.block_seconds, .regime = run.request.regime},
      .fallback = state.fallback};
  entry.complete = state.complete;
  entry.measured = std::ssize(state.trials);
  entry.legal = std::max(entry.legal, entry.measured);  // the default may lie outside the space
  entry.failed = std::ranges::count_if(state.trials, [](const Trial& trial) { return trial.status != Status::ok; });
  const auto note = [&](const std::string& text) { warn(run, text); };
  if (decide(entry, state.trials, run.backend, state.problem.shape, final, note))
    entry.occupancy = tile_occupancy(product_of(state.problem), block_m_of(entry.candidate).value_or(1));
  else
    entry.skipped = no_winner(state);
  if (run.shared.stop) entry.complete = false;  // its final may lack rounds: a resumed run makes it again
  with_lock(run, [&] {
    run.shared.journal.decided(entry, run.backend.device(), seconds_since(begin), state.complete && !state.cut);
  });
}

bool load(Run& run, const CellRun& state, Entry& entry) {
  for (;;) {
    const size_t before = workers_of_device(run);
    try {
      run.backend.load(state.problem);
      return true;
    } catch (const OutOfMemory& error) {
      if (workers_of_device(run) > 1) throw Crowded{error.what()};
      if (before > 1) continue;  // the others have left meanwhile
      entry.skipped = fmt::format("{}{}", kOutOfMemory, error.what());
      return false;
    }
  }
}

// Divides the remaining time among the remaining cells; devices work side by side.
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
  take_over_trials(run, state);
  set_end(run, state);
  emit(run,
       CellStarted{index, run.request.cells.size(), state.cell, state.planned, std::ssize(state.trials), run.device});
  Entry entry = new_entry(state);
  try {
    if (!load(run, state, entry)) return entry;
    state.complete = is_searched(run, state) || search(run, state);
    if (state.trials.empty()) return std::nullopt;
    finish(run, state, entry);
  } catch (...) {
    leave(run, state);
    throw;
  }
  return entry;
}

const Entry* decided_entry(const TuneRequest& request, const JournalContents& before, const Cell& cell) {
  const auto found = before.decided.find(id(cell));
  if (found == before.decided.end() || !found->second.complete) return nullptr;
  const bool searched = before.searched.contains(found->first) && before.header.strategy == request.strategy &&
                        before.header.space == request.space.name;
  const bool at_limit = request.max_candidates > 0 && found->second.measured >= request.max_candidates;
  return searched || at_limit ? &found->second : nullptr;
}

bool lacks_memory(const Entry& entry) { return entry.skipped.starts_with(kOutOfMemory); }

int64_t drawn_candidates(const TuneRequest& request) {
  return request.strategy == "random" ? request.max_candidates : 0;
}

}  // namespace moetune
