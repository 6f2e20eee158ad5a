// Options that choose candidates: a space and its changes, or candidates by name.
#pragma once
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "variant/space/space.h"

namespace moetune {

struct SearchOptions {
  std::string space;                  // empty: the command's own choice
  std::vector<std::string> variants;  // lists
  std::vector<std::string> settings;  // knob=values
  std::string max_candidates;         // to draw from the space

  bool names_space() const { return !space.empty() || !variants.empty() || !settings.empty(); }
};
/// Without a default space, candidates are only of a space where one is named, and --max-candidates draws from it.
void declare(OptionSet& set, SearchOptions& options, const std::string& default_space = {});

/// The space with --variant and --set applied; `default_space` where none was named.
SearchSpace make_space(const SearchOptions& options, const std::string& default_space, const Catalog& catalog);

/// Throws Exit::request where no variant of the space runs on this device, or none that has a knob of --set: the
/// options would change nothing.
void require_knobs(const SearchOptions& options, const SearchSpace& space, const DeviceInfo& device);

/// --max-candidates as a number, 0 where not given. Exit::request where no space is named that it could be of.
int64_t candidate_limit(const SearchOptions& options);

/// --candidate texts, knobs that they don't name unset; duplicates dropped.
std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts, const Catalog& catalog);

}  // namespace moetune
