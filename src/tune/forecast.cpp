// Means of a journal's times, and guesses where it has none.
#include "tune/forecast.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "record/table/table.h"
#include "tune/search/strategy.h"
#include "workload/product.h"

namespace moetune {
namespace {

// The time of a trial or a final besides its launches, and how many launches it has.
struct Figures {
  double seconds, launches;
  double sustained_loads;  // how often the sustained regime loads the GPU until its clock is steady
};
constexpr Figures kCpuTrial{.seconds = 0.03, .launches = 10, .sustained_loads = 0};
constexpr Figures kCpuFinal{.seconds = 1, .launches = 200, .sustained_loads = 0};
constexpr Figures kGpuTrial{.seconds = 0.05, .launches = 20, .sustained_loads = 3};
constexpr Figures kGpuFinal{.seconds = 0.5, .launches = 200, .sustained_loads = 60};
constexpr double kCpuFlops = 1e10, kGpuFlops = 2e12;     // per second, of one processor
constexpr int kCpuProcessors = 2, kGpuProcessors = 100;  // of a device that does not report them
constexpr double kLoadSeconds = 0.2;

struct Guess {
  double trial, final;
};

Guess guess(double flops, const DeviceInfo& device, Regime regime) {
  const bool gpu = device.kind == DeviceKind::cuda;
  const int processors = device.processors > 0 ? device.processors : gpu ? kGpuProcessors : kCpuProcessors;
  const double launch = flops / ((gpu ? kGpuFlops : kCpuFlops) * processors);
  const double load = regime == Regime::sustained ? kLoadSeconds : 0;
  const auto seconds = [&](const Figures& figures) {
    return figures.seconds + figures.launches * launch + figures.sustained_loads * load;
  };
  return {seconds(gpu ? kGpuTrial : kCpuTrial), seconds(gpu ? kGpuFinal : kCpuFinal)};
}

// Seconds that the journal has over those that were guessed.
struct Comparison {
  double told = 0, guessed = 0;
  void add(double seconds, double guess) { told += seconds, guessed += guess; }
  double scale() const { return guessed > 0 ? told / guessed : 0; }
};

// Trials of one candidate, which add blocks to it, count as one.
void add_trials(Pace& pace, Comparison& trials, const std::string& cell, const std::vector<Trial>& list, double guess) {
  double sum = 0;
  std::set<Candidate> candidates;
  for (const Trial& trial : list)
    if (trial.took > 0) sum += trial.took, candidates.insert(trial.candidate);
  if (candidates.empty()) return;
  const auto count = static_cast<double>(candidates.size());
  pace.trial[cell] = sum / count;
  trials.add(sum, count * guess);
}

// The trials that the strategy usually asks for, as if the cells before this one had winners. Which winners doesn't
// matter.
int64_t usual_trials(const TuneRequest& request, const Problem& problem, const DeviceInfo& device,
                     const std::shared_ptr<const Enumeration>& listed, const std::vector<Entry>& before) {
  const std::vector<const Entry*> entries = pointers_to(before);
  const bool lists = lists_candidates(request.strategy);
  if (lists && !listed) return 0;
  const auto domain = lists ? nullptr : std::make_shared<const Domain>(request.space, problem.shape, device);
  const auto strategy = make_strategy(request.strategy, {.problem = problem,
                                                         .device = device,
                                                         .fallback = default_candidate(request.space, problem, device),
                                                         .listed = listed,
                                                         .domain = domain,
                                                         .warm = warm_start(problem, entries),
                                                         .blocks = request.blocks,
                                                         .seed = request.seed});
  const int64_t usual = strategy->usual_candidates();
  return request.max_candidates > 0 ? std::min(usual, request.max_candidates) : usual;
}

int64_t candidates_in(const JournalContents& journal, const std::string& cell) {
  std::set<Candidate> candidates;
  const auto trials = journal.trials.find(cell);
  if (trials == journal.trials.end()) return 0;
  for (const Trial& trial : trials->second) candidates.insert(trial.candidate);
  return std::ssize(candidates);
}

}  // namespace

Pace pace_of(const JournalContents& journal) {
  Pace pace;
  Comparison trials, finals;
  for (const Cell& cell : journal.header.cells) try {
      const std::string name = id(cell);
      const auto list = journal.trials.find(name);
      const auto final = journal.final_seconds.find(name);
      if (list == journal.trials.end()) continue;
      const Guess guessed = guess(flops(product_of(make_problem(cell))), journal.header.device, journal.header.regime);
      add_trials(pace, trials, name, list->second, guessed.trial);
      if (final == journal.final_seconds.end()) continue;
      pace.final[name] = final->second;
      finals.add(final->second, guessed.final);
    } catch (const Error&) {  // its recording is missing: the cell is left out
    }
  const auto at_once = static_cast<double>(journal.header.at_once);
  for (auto* times : {&pace.trial, &pace.final})
    for (auto& [cell, seconds] : *times) seconds /= at_once;
  pace.trial_scale = trials.scale() / at_once;
  pace.final_scale = finals.scale() / at_once;
  return pace;
}

double forecast_seconds(const CellWorkload& cell, const Pace& pace, const DeviceInfo& device, Regime regime,
                        bool* guessed) {
  const Guess guessed_seconds = guess(cell.flops, device, regime);
  const auto seconds = [&](const std::map<std::string, double>& told, double scale, double by_figures) {
    const auto found = told.find(cell.id);
    return found != told.end() ? found->second : scale > 0 ? scale * by_figures : by_figures;
  };
  if (guessed) *guessed = pace.trial_scale <= 0;
  return static_cast<double>(cell.trials) * seconds(pace.trial, pace.trial_scale, guessed_seconds.trial) +
         seconds(pace.final, pace.final_scale, guessed_seconds.final);
}

RunForecast forecast_run(const TuneRequest& request, const DeviceInfo& device,
                         const std::vector<std::shared_ptr<const Enumeration>>& listed, const JournalContents& journal,
                         size_t devices, bool resume) {
  const bool compares = same_model(journal.header.device, device) && journal.header.regime == request.regime;
  const JournalContents known = compares ? journal : JournalContents{};
  const Pace pace = pace_of(known);
  RunForecast run;
  std::vector<Entry> before = request.warm_start;
  for (size_t i = 0; i < request.cells.size(); ++i) {
    const Cell& cell = request.cells[i];
    if (resume && decided_entry(request, known, cell)) {
      run.cells.emplace_back();
      continue;
    }
    const Problem problem = make_problem(cell);
    CellForecast forecast{.trials = usual_trials(request, problem, device, listed.at(i), before)};
    if (resume) forecast.trials = std::max<int64_t>(0, forecast.trials - candidates_in(known, id(cell)));
    forecast.seconds = forecast_seconds({id(cell), forecast.trials, flops(product_of(problem))}, pace, device,
                                        request.regime, &run.guessed);
    run.trials += forecast.trials;
    run.seconds += forecast.seconds;
    run.cells.push_back(forecast);
    before.emplace_back().cell = cell;
    before.back().figures = figures(problem.routing);
  }
  run.seconds /= static_cast<double>(std::clamp<size_t>(devices, 1, std::max<size_t>(1, request.cells.size())));
  if (request.time_budget > 0) run.seconds = std::min(run.seconds, request.time_budget);
  return run;
}

}  // namespace moetune
