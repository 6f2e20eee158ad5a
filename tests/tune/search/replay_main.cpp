// replay_journals: what a strategy would have found on the device of recorded journals, or with --predict what the cost
// model expects of their candidates. No kernel runs. For tests/cli/test_recorded_search.py and scripts/fit_cost.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "built_in.h"
#include "record/journal/journal.h"
#include "tune/final.h"
#include "tune/search/strategy.h"
#include "variant/catalog.h"
#include "variant/cost.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kIntervalSds = 1.96;          // half a 95 % interval
constexpr uint64_t kRehearsalStream = 0x4e4e;  // of random numbers

struct RehearsalRequest {
  std::string strategy = "auto";
  int runs = 10;               // with the seeds 0, 1, ...
  int64_t max_candidates = 0;  // a cell; 0 = no limit
  bool cold = false;           // a cell begins without what won those before it
};

// What the runs found in one cell. A loss is how much longer a candidate takes than the best of the journal, by their
// recorded medians: 0.02 for 2 %.
struct RehearsedCell {
  Cell cell;
  int64_t recorded = 0;  // candidates in the journal that are right
  Candidate best;        // of these
  double best_seconds = 0;
  double default_loss = 0;          // infinite where the journal lacks the default
  std::vector<double> losses;       // one per run
  std::vector<int64_t> candidates;  // tried, one count per run
};

using Recorded = std::map<Candidate, Trial>;  // the last trial of each

Recorded recorded_of(const JournalContents& journal, const std::string& cell) {
  Recorded result;
  const auto found = journal.trials.find(cell);
  if (found == journal.trials.end()) return result;
  for (const Trial& trial : found->second) {
    if (!trial.candidate.foreign.empty())
      throw request_error(fmt::format("{}: {} is of a pack that is missing here, or of another build of it", cell,
                                      trial.candidate.variant->name));
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
  int64_t candidates = 0;
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
  std::map<Candidate, Trial> known;
  Found found;
  while (const std::optional<Ask> next = strategy->ask()) {
    const bool fresh = !known.contains(next->candidate);
    if (fresh && request.max_candidates > 0 && std::ssize(known) >= request.max_candidates) break;
    const Trial& source = stage.recorded.at(next->candidate);
    Trial& trial = known[next->candidate];
    trial.candidate = source.candidate, trial.status = source.status;
    if (trial.status == Status::ok) {
      for (int i = 0; i < next->blocks; ++i) trial.blocks.push_back(drawn(source, random));
      trial.measurement = summarise(trial.blocks);
    }
    strategy->tell(trial);
  }
  found.candidates = std::ssize(known);
  std::vector<const Trial*> right;
  for (const auto& [candidate, trial] : known)
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

// Runs a strategy over the cells of a journal, in their order. The space of a cell is its candidates in the journal. A
// block is drawn from those recorded of its candidate; where there are none, from a normal distribution as wide as the
// recorded interval. As in a final, the fastest three and the default are compared again, here without noise. Cells
// without a right candidate are left out; the default is tried where the journal has it, else the search begins with
// the recorded candidate that is nearest to it.
std::vector<RehearsedCell> rehearse(const JournalContents& journal, const RehearsalRequest& request) {
  std::vector<RehearsedCell> results;
  std::vector<std::vector<Entry>> before(static_cast<size_t>(request.runs));  // of each run
  for (const Cell& cell : journal.header.cells) {
    Stage stage{
        .problem = make_problem(cell), .device = journal.header.device, .recorded = recorded_of(journal, id(cell))};
    std::optional<RehearsedCell> result = prepare(cell, stage);
    if (!result) continue;
    for (size_t run = 0; run < before.size(); ++run) {
      const auto entries = !request.cold ? pointers_to(before[run]) : std::vector<const Entry*>();
      const Found found = search(stage, request, warm_start(stage.problem, entries), run);
      result->candidates.push_back(found.candidates);
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

double mean_loss(const std::vector<double>& losses) {
  return geometric_mean(mapped(losses, [](double loss) { return 1 + loss; })) - 1;
}

void print_rehearsed(const std::vector<RehearsedCell>& cells) {
  if (cells.empty()) throw request_error("no cell of these journals has a candidate that was timed");
  Json json = {{"mean_loss", mean_loss(mapped(cells, [](const auto& one) { return mean_loss(one.losses); }))},
               {"cells", Json::array()}};
  for (const RehearsedCell& cell : cells) {
    json["cells"].push_back({{"id", id(cell.cell)},
                             {"recorded", cell.recorded},
                             {"best", to_json(cell.best)},
                             {"losses", cell.losses},
                             {"candidates", cell.candidates}});
    if (std::isfinite(cell.default_loss)) json["cells"].back()["default_loss"] = cell.default_loss;
  }
  std::cout << pretty_json(json);
}

// What each candidate of a kernel that is here took last, where its result was right.
std::map<Candidate, double> last_seconds(const std::vector<Trial>& trials) {
  std::map<Candidate, double> seconds;
  for (const Trial& trial : trials)
    if (trial.status == Status::ok && !no_kernel_of(trial.candidate))
      seconds[trial.candidate] = trial.measurement.time.value;
  return seconds;
}

// A JSON line for each candidate that one of the models knows: its time, and what each of its models expects.
void print_predictions(const JournalContents& journal, const std::vector<VariantPtr>& models) {
  for (const Cell& cell : journal.header.cells) {
    const auto trials = journal.trials.find(id(cell));
    if (trials == journal.trials.end()) continue;
    const Problem problem = make_problem(cell);
    for (const auto& [candidate, seconds] : last_seconds(trials->second)) {
      Json line = {{"cell", trials->first}, {"candidate", text(candidate)}, {"measured_us", rounded(seconds / kMicro)}};
      for (const VariantPtr& model : models)
        if (model->name == candidate.variant->name)
          line["predicted_us"].push_back(
              rounded(model->seconds(candidate, problem, journal.header.device) / kMicro, 9));
      if (line.contains("predicted_us")) std::cout << line.dump() << "\n";
    }
  }
}

void replay(const std::vector<std::string>& journals, const std::vector<std::string>& costs,
            const RehearsalRequest& request) {
  const Catalog catalog;
  const auto model = [](const std::string& file) { return with_constants(JsonAt(read_json(file), file)); };
  const std::vector<VariantPtr> models = mapped(costs, model);
  std::vector<RehearsedCell> cells;
  for (const std::string& file : journals) {
    const JournalContents journal = read_journal(file, catalog);
    if (!models.empty()) {
      print_predictions(journal, models);
      continue;
    }
    for (RehearsedCell& cell : rehearse(journal, request)) cells.push_back(std::move(cell));
  }
  if (models.empty()) print_rehearsed(cells);
}

}  // namespace
}  // namespace moetune

int main(int count, char** words) {
  std::vector<std::string> journals, costs;
  moetune::RehearsalRequest request;
  CLI::App app("Tries a search strategy on recorded journals, without the device");
  app.add_option("JOURNAL", journals, "Journals of exhaustive runs")->required();
  app.add_option("--strategy", request.strategy, "The strategy to try");
  app.add_option("--runs", request.runs, "Runs of each cell, with the seeds 0 to N - 1");
  app.add_option("--max-candidates", request.max_candidates, "At most N candidates per cell");
  app.add_flag("--cold", request.cold, "Begin each cell without the winners of earlier cells");
  app.add_option("--predict", costs, "Print the times that the cost model expects with the constants of FILE")
      ->allow_extra_args(false);
  CLI11_PARSE(app, count, words);
  try {
    moetune::replay(journals, costs, request);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
  return 0;
}
