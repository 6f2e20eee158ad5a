// --space, --variant, --set, --candidate.
#include "cli/options/search_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text/units.h"
#include "variant/catalog.h"

namespace moetune {

void declare(OptionSet& set, SearchOptions& options, const std::string& default_space) {
  set.group("Candidates");
  const std::string otherwise = default_space.empty() ? "" : fmt::format(" [{}]", default_space);
  set.value("--space", options.space, "NAME|FILE",
            "Values to try for each knob: a named space (moetune list spaces), or a file" + otherwise,
            [] { return embedded_names("configs/spaces/"); });
  set.list("--variant", options.variants, "LIST",
           "Only these variants (moetune list variants), even if the space lacks them",
           [] { return mapped(Catalog().variants(), [](const VariantPtr& variant) { return variant->name; }); });
  set.list("--set", options.settings, "KNOB=LIST", "Other values to try for a knob, such as block_m=64,128");
  if (default_space.empty())
    set.value("--max-candidates", options.max_candidates, "N",
              "At most N candidates of the space per cell, drawn at random by the cell's seed");
  set.group("Options");
}

SearchSpace make_space(const SearchOptions& options, const std::string& default_space, const Catalog& catalog) {
  SearchSpace space = load_space(options.space.empty() ? default_space : options.space, catalog);
  const std::vector<std::string> variants = list_words(options.variants, "--variant");
  if (!variants.empty()) keep_variants(space, variants, catalog);
  std::set<std::string> set;  // a knob that is set twice has the values of both
  for (const std::string& setting : options.settings)
    set_values(space, setting, catalog, !set.insert(setting.substr(0, setting.find('='))).second);
  return space;
}

void require_knobs(const SearchOptions& options, const SearchSpace& space, const DeviceInfo& device) {
  if (options.names_space()) require_variant(space, device);
  for (const std::string& setting : options.settings) {
    const std::string name = setting.substr(0, setting.find('='));
    std::vector<std::string> owners;
    bool here = false;
    for (const auto& [variant, values] : space.variants)
      if (std::ranges::find(variant->knobs, name, &Knob::name) != variant->knobs.end())
        owners.push_back(variant->name), here = here || variant->device == device.kind;
    if (!here)
      throw request_error(fmt::format("--set {}: no variant of the space '{}' that runs on {} has the knob '{}'",
                                      setting, space.name, device.kind == DeviceKind::cuda ? "a GPU" : "a cpu", name),
                          fmt::format("variants that have it: {}", fmt::join(owners, ", ")));
  }
}

int64_t candidate_limit(const SearchOptions& options) {
  if (options.max_candidates.empty()) return 0;
  if (!options.names_space())
    throw request_error("--max-candidates needs a space to draw from", "add --space quick or --space full");
  return parse_integer(options.max_candidates, "--max-candidates", 1, std::numeric_limits<int64_t>::max());
}

std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts, const Catalog& catalog) {
  std::vector<Candidate> candidates;
  for (const std::string& text : texts) {
    const Candidate candidate = parse_partial_candidate(text, catalog);
    if (std::find(candidates.begin(), candidates.end(), candidate) == candidates.end()) candidates.push_back(candidate);
  }
  return candidates;
}

}  // namespace moetune
