// Robust choices on the command line: options of `tune`, and how their results read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/append.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/sections.h"
#include "cli/shard.h"
#include "tune/choose.h"

namespace moetune {

struct ChoosingOptions {
  std::string rule, bucket_loss;  // --choose, --bucket-loss; empty = not given
};
void declare(OptionSet& set, ChoosingOptions& options);

/// What is asked for; nothing without the options. Exit::request where the cells leave nothing to choose, or where they
/// are those of one shard of several.
std::optional<ChooseRequest> choose_request(const ChoosingOptions& options, const std::vector<Cell>& cells,
                                            const Shard& shard);

/// For each layer with choices two tables: the choices with the token counts that they serve, and in each cell the time
/// and the regret of the choice, beside the default's regret and the largest. `verbose` adds all contenders' regrets.
std::vector<Section> choice_sections(const TunedTable& table, bool verbose);

/// "2 robust choices: at most 1.2 % slower than the fastest contender of a cell, 0.4 % on average." Empty without any.
std::string choices_sentence(const TunedTable& table);

}  // namespace moetune
