// `moetune replay`: what would a strategy have found, and after how many candidates?
#include <cmath>
#include <limits>

#include "cli/commands/command.h"
#include "record/fields.h"
#include "tune/search/rehearsal.h"
#include "tune/search/strategy.h"
#include "variant/cost.h"

namespace moetune {
namespace {

constexpr double kMicro = 1e-6;

struct ReplayOptions {
  std::vector<std::string> journals, costs, packs;
  std::string strategy = "auto", runs = "10", max_candidates, max_loss, max_worst, format;
  bool cold = false;
};

double mean_loss(const RehearsedCell& cell) {
  return geometric_mean(mapped(cell.losses, [](double loss) { return 1 + loss; })) - 1;
}

double worst_loss(const RehearsedCell& cell) { return *std::ranges::max_element(cell.losses); }
// A missing or unreadable file is told by whoever reads it.
void require_journal(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || is_journal(file)) return;
  throw request_error(fmt::format("{}: not a journal of moetune", file),
                      file.ends_with(".xz") ? fmt::format("unpack it first: xz -dk {}", shell_line({file}))
                                            : "a journal lies beside its table, TABLE.journal.jsonl");
}

int64_t most(const std::vector<int64_t>& counts) { return *std::ranges::max_element(counts); }
int64_t mean(const std::vector<int64_t>& counts) {
  double sum = 0;
  for (const int64_t count : counts) sum += static_cast<double>(count);
  return std::llround(sum / static_cast<double>(counts.size()));
}

std::string loss_text(double loss) { return std::isfinite(loss) ? fmt::format("{:.1f} %", 100 * loss) : "unknown"; }

Grid grid_of(const std::vector<RehearsedCell>& cells) {
  Grid grid = titled("cell|recorded>|best>|default>|loss>|worst>|tried>|at most>");
  for (const RehearsedCell& cell : cells)
    grid.rows.push_back({id(cell.cell), std::to_string(cell.recorded), format_time(cell.best_seconds),
                         loss_text(cell.default_loss), loss_text(mean_loss(cell)), loss_text(worst_loss(cell)),
                         std::to_string(mean(cell.candidates)), std::to_string(most(cell.candidates))});
  return grid;
}

Json json_of(const RehearsedCell& cell) {
  const auto plain = [](double loss) { return rounded(loss); };
  Json json = {{"id", id(cell.cell)},
               {"recorded", cell.recorded},
               {"best", to_json(cell.best)},
               {"best_us", rounded(cell.best_seconds / kMicro)}};
  if (std::isfinite(cell.default_loss)) json["default_loss"] = rounded(cell.default_loss);
  json.update({{"losses", json_list(cell.losses, plain)}, {"candidates", cell.candidates}, {"blocks", cell.blocks}});
  return json;
}

Fields fields_of(const RehearsedCell& cell) {
  Fields row;
  add_cell(row, cell.cell);
  row.emplace_back("recorded", std::to_string(cell.recorded));
  row.emplace_back("best_us", number_field(cell.best_seconds / kMicro));
  row.emplace_back("default_loss", number_field(cell.default_loss));
  row.emplace_back("mean_loss", number_field(mean_loss(cell)));
  row.emplace_back("worst_loss", number_field(worst_loss(cell)));
  row.emplace_back("mean_candidates", std::to_string(mean(cell.candidates)));
  row.emplace_back("most_candidates", std::to_string(most(cell.candidates)));
  return row;
}

double limit_of(const std::string& text, const std::string& option) {
  return text.empty() ? std::numeric_limits<double>::infinity() : parse_share(text, option);
}

// What each candidate of a kernel that is here took last, where its result was right.
std::map<Candidate, double> last_seconds(const std::vector<Trial>& trials) {
  std::map<Candidate, double> seconds;
  for (const Trial& trial : trials)
    if (trial.status == Status::ok && !no_kernel_of(trial.candidate))
      seconds[trial.candidate] = trial.measurement.time.value;
  return seconds;
}

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
      if (line.contains("predicted_us")) print(line.dump() + "\n");
    }
  }
}

Exit run_replay(const ReplayOptions& options, const Invocation& invocation) {
  const Catalog catalog(options.packs);
  const auto read = [](const std::string& file) { return with_constants(JsonAt(read_json(file), file)); };
  const std::vector<VariantPtr> models = mapped(options.costs, read);
  if (!models.empty()) {
    for (const std::string& file : options.journals) {
      require_journal(file);
      print_predictions(read_journal(file, catalog), models);
    }
    return Exit::yes;
  }
  const Format format = parse_format(options.format, kFormats);
  RehearsalRequest request{.strategy = options.strategy, .warm_start = !options.cold};
  require_strategy(request.strategy);
  request.runs = static_cast<int>(parse_integer(options.runs, "--runs", 1, 1000));
  if (!options.max_candidates.empty())
    request.max_candidates =
        parse_integer(options.max_candidates, "--max-candidates", 1, std::numeric_limits<int64_t>::max());
  const double max_mean = limit_of(options.max_loss, "--max-loss"),
               max_worst = limit_of(options.max_worst, "--max-worst");
  std::vector<RehearsedCell> cells;
  for (const std::string& file : options.journals) {
    require_journal(file);
    const JournalContents journal = read_journal(file, catalog);
    if (journal.header.strategy != "exhaustive")
      note(invocation.terminal,
           fmt::format("{}: a journal of the strategy {}: what it did not try is no candidate here", file,
                       journal.header.strategy));
    for (RehearsedCell& cell : rehearse(journal, request)) cells.push_back(std::move(cell));
  }
  if (cells.empty())
    throw request_error("no cell of these journals has a candidate that was timed",
                        "record some with tune --strategy exhaustive");
  const double mean_of_all = geometric_mean(mapped(cells, [](const auto& cell) { return 1 + mean_loss(cell); })) - 1;
  const double worst = std::ranges::max(mapped(cells, worst_loss));
  const int64_t tried = std::ranges::max(mapped(cells, [](const auto& cell) { return most(cell.candidates); }));
  if (format == Format::json) {
    print(pretty_json({{"schema", "moetune.replay/1"},
                       {"tool", tool_json(invocation.argv)},
                       {"strategy", request.strategy},
                       {"runs", request.runs},
                       {"mean_loss", rounded(mean_of_all)},
                       {"worst_loss", rounded(worst)},
                       {"most_candidates", tried},
                       {"cells", json_list(cells, json_of)}}));
  } else {
    const auto rows = mapped(cells, [](const RehearsedCell& cell) { return fields_of(cell); });
    print(format == Format::csv ? csv_text(rows[0], rows) : table_text(grid_of(cells), format, invocation.terminal));
  }
  const bool passed = mean_of_all <= max_mean && worst <= max_worst;
  if (format == Format::text)
    print(
        fmt::format("\n{} in {}: winners are {} slower than the journal's best (geometric mean), {} at worst, after {} "
                    "at most.{}\n",
                    request.strategy, counted(cells.size(), "cell"), loss_text(mean_of_all), loss_text(worst),
                    counted(tried, "candidate"), passed ? "" : " That is more than allowed."));
  return passed ? Exit::yes : Exit::no;
}

void declare_replay(OptionSet& set, ReplayOptions& options) {
  set.arguments("JOURNAL", options.journals, "Journals of exhaustive runs");
  set.value("--strategy", options.strategy, "NAME", "The strategy to try (moetune list strategies)");
  set.value("--runs", options.runs, "N", "Runs of each cell, with the seeds 0 to N - 1");
  set.value("--max-candidates", options.max_candidates, "N", "At most N candidates per cell");
  set.flag("--cold", options.cold, "Begin each cell without the winners of earlier cells");
  set.value("--max-loss", options.max_loss, "PERCENT", "Exit with 1 if the geometric mean of losses is higher");
  set.value("--max-worst", options.max_worst, "PERCENT", "Exit with 1 if any loss is higher");
  set.list("--predict", options.costs, "FILE",
           "Only print the times that the cost model expects with the constants of FILE (configs/cost), as JSON lines");
  declare_packs(set, options.packs);
  declare_format(set, options.format, kFormats);
}

}  // namespace

Command replay_command() {
  return {.name = "replay",
          .summary = "Try a search strategy on recorded journals, without the device",
          .examples =
              "  moetune replay moetune-table.json.journal.jsonl\n"
              "  moetune replay *.jsonl --strategy random --max-candidates 150 --runs 100\n"
              "  moetune replay *.jsonl --max-loss 0.5% --max-worst 1%",
          .declare = with_options<ReplayOptions, declare_replay, run_replay>};
}

}  // namespace moetune
