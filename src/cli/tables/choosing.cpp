// Choices in words and tables.
#include "cli/tables/choosing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/group.h"
#include "base/text/units.h"
#include "record/table/table.h"
#include "tune/rounds.h"

namespace moetune {
namespace {

constexpr double kWait = 0.5;  // seconds per cell, as the shortest wait of a final

std::string percent(double regret) { return fmt::format("{:.{}f} %", 100 * regret, regret < 0.0995 ? 1 : 0); }

// "wgmma block_m=64 stages=4": the knobs that differ from the default of the choice's first cell.
std::string candidate_text(const TunedTable& table, const RobustChoice& choice, const Candidate& candidate,
                           bool verbose) {
  const Entry* first = find_entry(table, choice.cells.front());
  if (verbose || !first) return text(candidate);
  Entry shown = *first;
  shown.candidate = candidate;
  return winner_text(shown, table.device);
}

using Choices = std::vector<const RobustChoice*>;

Grid choices_grid(const TunedTable& table, const Choices& choices, bool verbose) {
  const char* title = verbose ? "choice" : "choice (knobs that differ from the default)";
  Grid grid{{{"for tokens"}, {title}, {"worst", true}, {"mean", true}}, {}};
  for (const RobustChoice* choice : choices)
    grid.rows.push_back({text(choice->tokens), candidate_text(table, *choice, choice->candidate(), verbose),
                         percent(worst_regret(*choice, choice->chosen)),
                         percent(mean_regret(*choice, choice->chosen))});
  return grid;
}

// The regret of the cell's own default where that is among the contenders.
std::string default_regret(const TunedTable& table, const RobustChoice& choice, size_t cell) {
  const Entry* entry = find_entry(table, choice.cells[cell]);
  const Rival* fallback = entry ? find_rival(*entry, "default") : nullptr;
  if (fallback)
    for (size_t who = 0; who < choice.contenders.size(); ++who)
      if (choice.contenders[who].candidate == fallback->candidate) return percent(regret(choice, who, cell));
  return "";
}

Grid regrets_grid(const TunedTable& table, const Choices& choices) {
  Grid grid = cell_grid({{"time", true}, {"regret", true}, {"default's", true}, {"largest", true}});
  for (const RobustChoice* choice : choices)
    for (size_t cell = 0; cell < choice->cells.size(); ++cell) {
      const Estimate& time = choice->contenders[choice->chosen].times[cell];
      double largest = 0;
      for (size_t who = 0; who < choice->contenders.size(); ++who)
        largest = std::max(largest, regret(*choice, who, cell));
      add_row(grid, choice->cells[cell],
              {time_text(time), percent(regret(*choice, choice->chosen, cell)), default_regret(table, *choice, cell),
               percent(largest)});
    }
  return grid;
}

Grid matrix_grid(const Choices& choices) {
  Grid grid = cell_grid({{"regret", true}, {"contender"}});
  for (const RobustChoice* choice : choices)
    for (size_t cell = 0; cell < choice->cells.size(); ++cell)
      for (size_t who = 0; who < choice->contenders.size(); ++who)
        add_row(grid, choice->cells[cell],
                {percent(regret(*choice, who, cell)),
                 text(choice->contenders[who].candidate) + (who == choice->chosen ? " (chosen)" : "")});
  return grid;
}

}  // namespace

void declare(OptionSet& set, ChoosingOptions& options) {
  set.group("Robust choice");
  set.value(
      "--choose", [&](const std::string& word, const std::string& option) { options.rule = parse_rule(word, option); },
      "worst|mean",
      "For each token count, also choose one candidate for all its routings: the one with the least regret, in "
      "the worst of them or on average",
      one_of({"worst", "mean"}));
  set.value(
      "--bucket-loss",
      [&](const std::string& word, const std::string& option) { options.bucket_loss = parse_share(word, option); },
      "SHARE", "Merge token counts while one candidate's regret stays within this, such as 2%; implies --choose worst");
}

std::optional<ContestRequest> choose_request(const ChoosingOptions& options, const Shard& shard) {
  if (!options.rule && !options.bucket_loss) return std::nullopt;
  ContestRequest request;
  request.rule = options.rule.value_or(request.rule);
  request.bucket_loss = options.bucket_loss.value_or(request.bucket_loss);
  if (request.rule == Rule::layer) throw request_error("--choose layer is what --for does", "add --for vllm");
  if (shard.count > 1)
    throw request_error("--choose: a shard holds only a part of the cells to choose for",
                        "merge the shards' tables, then run tune with --append --choose and --shard 1/1");
  return request;
}

void require_choice(const ContestRequest& request, const std::vector<Cell>& cells) {
  if (request.rule == Rule::layer || has_contest(cells, request.bucket_loss)) return;
  if (request.bucket_loss > 0)
    throw request_error("--bucket-loss: no layer has two cells to choose for", "name several --tokens or --routing");
  throw request_error("--choose: no two cells differ in their routing alone",
                      "name several --routing, or merge --tokens with --bucket-loss 2%");
}

void measure_as_finals(ContestRequest& request, const TuneRequest& run) {
  request.rounds = run.final_rounds;
  request.looks = run.final_looks;
  request.wait = run.final_wait.value_or(kWait);
  request.sample = {.blocks = 1, .block_seconds = run.block_seconds, .regime = run.regime};
  request.end = end_of_budget(run.time_budget);
}

void contest_on(const std::vector<Backend*>& devices, std::string_view what, bool quiet, const Terminal& terminal,
                const std::function<void(Backend&, const ContestListener&)>& measure) {
  ContestListener listener;
  if (!quiet) {
    listener.note = [&](const std::string& text) { note(terminal, text); };
    listener.begins = [&](const Cell& cell, size_t contenders) {
      print_to_stderr(fmt::format("{}: {}, {}\n", what, id(cell), counted(contenders, "contender")));
    };
  }
  for (size_t device = 0;; ++device) try {
      return measure(*devices.at(device), listener);
    } catch (const Error& error) {
      if (error.exit() != Exit::machine || device + 1 == devices.size()) throw;
    } catch (const CandidateFault& fault) {
      if (device + 1 == devices.size())
        throw machine_error(fmt::format("the device's worker failed: {}", fault.what()));
    }
}

std::vector<HeadedTable> choice_tables(const TunedTable& table, bool verbose) {
  std::vector<HeadedTable> tables;
  const Choices all = pointers_to(table.choices);
  for (const Choices& same : grouped_by(all, [](const RobustChoice* choice) { return choice->shape(); })) {
    const std::vector<std::string> heading = {
        title(same[0]->shape()), same[0]->rule == Rule::layer
                                     ? "Choices of least worst regret of up and down together"
                                     : fmt::format("Robust choices of least {} regret", name(same[0]->rule))};
    tables.push_back({heading, choices_grid(table, same, verbose)});
    tables.push_back({heading, regrets_grid(table, same)});
    if (verbose) tables.push_back({heading, matrix_grid(same)});
  }
  return tables;
}

std::string choices_sentence(const TunedTable& table) {
  if (table.choices.empty()) return "";
  double worst = 0, sum = 0, noise = 0;
  size_t cells = 0;
  for (const RobustChoice& choice : table.choices) {
    worst = std::max(worst, worst_regret(choice, choice.chosen));
    sum += mean_regret(choice, choice.chosen) * static_cast<double>(choice.cells.size());
    noise = std::max(noise, uncertainty(choice));
    cells += choice.cells.size();
  }
  return fmt::format("{}: at most {} slower than the fastest contender of a cell, {} on average ({}times ± {}).",
                     counted(table.choices.size(), "robust choice"), percent(worst),
                     percent(sum / static_cast<double>(cells)), noise > kUncertainTime ? "too noisy to trust: " : "",
                     percent(std::expm1(noise)));
}

}  // namespace moetune
