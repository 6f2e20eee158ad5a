// Robust choices on the command line: options of `tune`, and how their results read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "cli/options/shard.h"
#include "cli/text/console.h"
#include "cli/text/output.h"
#include "tune/contest.h"
#include "tune/tuner.h"

namespace moetune {

struct ChoosingOptions {
  std::optional<Rule> rule = {};           // --choose
  std::optional<double> bucket_loss = {};  // --bucket-loss
};
void declare(OptionSet& set, ChoosingOptions& options);

/// What is asked for; nothing without the options. Exit::request where the run has one shard of several.
std::optional<ContestRequest> choose_request(const ChoosingOptions& options, const Shard& shard);

/// Throws Exit::request where these cells leave nothing to choose.
void require_choice(const ContestRequest& request, const std::vector<Cell>& cells);

/// Takes the rounds, looks, waiting and blocks of the run's finals, and its end where it begins now.
void measure_as_finals(ContestRequest& request, const TuneRequest& run);

/// Runs `measure` on a device, with a listener that shows each cell to people unless `quiet`; `what` is done there. A
/// device that is lost leaves the work to the next; the last one's error is thrown.
void contest_on(const std::vector<Backend*>& devices, std::string_view what, bool quiet, const Terminal& terminal,
                const std::function<void(Backend&, const ContestListener&)>& measure);

/// For each layer with choices two tables: the choices with the token counts that they serve, and in each cell the time
/// and the regret of the choice, beside the default's regret and the largest. `verbose` adds all contenders' regrets.
std::vector<HeadedTable> choice_tables(const TunedTable& table, bool verbose);

/// "2 robust choices: at most 1.2 % slower than the fastest contender of a cell, 0.4 % on average (times ± 0.3 %)."
/// Empty without any. It says so where times are more uncertain than kUncertainTime.
std::string choices_sentence(const TunedTable& table);

}  // namespace moetune
