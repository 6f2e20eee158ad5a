// Options that choose candidates: a space and its changes, or candidates by name.
#pragma once
#include <string>
#include <vector>

#include "cli/options.h"
#include "variant/space.h"

namespace moetune {

struct SearchOptions {
  std::string space;                  // empty: the command's own choice
  std::vector<std::string> variants;  // lists
  std::vector<std::string> settings;  // knob=values
};
void declare(OptionSet& set, SearchOptions& options, const std::string& default_space);

/// The space with --variant and --set applied; `default_space` where none was named.
SearchSpace make_space(const SearchOptions& options, const std::string& default_space);

/// --candidate texts, knobs that they don't name unset; duplicates dropped.
std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts);

}  // namespace moetune
