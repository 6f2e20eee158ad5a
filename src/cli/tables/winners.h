// A tuned table as people read it after a run: routings, times, winners, and the answer in a sentence.
#pragma once
#include <string>

#include "cli/text/output.h"

namespace moetune {

/// For each layer the figures of its routings, the winners' times beside the default's and the fastest baseline's,
/// and the winners by the knobs that differ from the default; then layers, and what training steps take: text of at
/// most 80 columns. A verbose style adds all knobs, all baselines and rates, in wider tables.
std::string results_text(const TunedTable& table, const Style& style);

/// "3 of 12 cells are too noisy to trust: CELL (its time is uncertain by 31 %), ...; tune again with a longer --wait or
/// on a quieter machine." Empty where every winner can be trusted.
std::string noise_sentence(const TunedTable& table);

/// "6 of 6 cells tuned: the winners are 1.35x as fast as the default and 1.10x as fast as cublas-grouped, the
/// fastest baseline (geometric means)." Ratios that are too uncertain to claim are left out, and the noise sentence
/// follows.
std::string answer(const TunedTable& table, size_t cells);

}  // namespace moetune
