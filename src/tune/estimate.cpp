// Means of what a journal tells, and figures for where it tells nothing.
#include "tune/estimate.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "workload/product.h"

namespace moetune {
namespace {

// What a trial or a final takes however small the problem is, and how often it launches it.
struct Figures {
  double seconds, launches;
  double sustained_loads;  // in the sustained regime the GPU is loaded so often until its clock is steady
};
constexpr Figures kCpuTrial{.seconds = 0.03, .launches = 10, .sustained_loads = 0};
constexpr Figures kCpuFinal{.seconds = 1, .launches = 200, .sustained_loads = 0};
constexpr Figures kGpuTrial{.seconds = 0.05, .launches = 20, .sustained_loads = 3};
constexpr Figures kGpuFinal{.seconds = 1.5, .launches = 200, .sustained_loads = 60};
constexpr double kCpuFlops = 1e10, kGpuFlops = 2e12;  // a second, of a processor
constexpr double kLoadSeconds = 0.2;

struct Guess {
  double trial, final;
};

Guess guess(double flops, const DeviceInfo& device, Regime regime) {
  const bool gpu = device.kind == DeviceKind::cuda;
  const double launch = flops / ((gpu ? kGpuFlops : kCpuFlops) * std::max(1, device.processors));
  const double load = regime == Regime::sustained ? kLoadSeconds : 0;
  const auto seconds = [&](const Figures& figures) {
    return figures.seconds + figures.launches * launch + figures.sustained_loads * load;
  };
  return {seconds(gpu ? kGpuTrial : kCpuTrial), seconds(gpu ? kGpuFinal : kCpuFinal)};
}

// Seconds that are told over those that were guessed.
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

}  // namespace

Pace pace_of(const Replay& journal) {
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
    } catch (const Error&) {  // a recording that is gone: the cell tells nothing
    }
  pace.trial_scale = trials.scale();
  pace.final_scale = finals.scale();
  return pace;
}

double estimated_seconds(const CellWorkload& cell, const Pace& pace, const DeviceInfo& device, Regime regime,
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

}  // namespace moetune
