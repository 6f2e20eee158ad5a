// --space, --variant, --set, --candidate.
#include "cli/search_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace moetune {

void declare(OptionSet& set, SearchOptions& options, const std::string& default_space) {
  set.group("Candidates");
  const std::string otherwise = default_space.empty() ? "" : fmt::format(" [{}]", default_space);
  set.value("--space", options.space, "NAME", "Values for each knob (moetune list spaces), or a file" + otherwise);
  set.list("--variant", options.variants, "LIST", "Only these variants (moetune list variants)");
  set.list("--set", options.settings, "KNOB=LIST", "Other values for a knob, such as block_m=64,128");
  set.group("Options");
}

SearchSpace make_space(const SearchOptions& options, const std::string& default_space) {
  SearchSpace space = load_space(options.space.empty() ? default_space : options.space);
  std::vector<std::string> variants;
  for (const std::string& list : options.variants)
    for (const std::string& name : split(list, ',')) variants.push_back(name);
  if (!variants.empty()) keep_variants(space, variants);
  for (const std::string& setting : options.settings) set_values(space, setting);
  return space;
}

std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts) {
  std::vector<Candidate> candidates;
  for (const std::string& text : texts) {
    const Candidate candidate = parse_partial_candidate(text);
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end()) candidates.push_back(candidate);
  }
  return candidates;
}

}  // namespace moetune
