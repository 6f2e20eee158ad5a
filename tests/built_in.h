// The catalog without packs, and what tests ask of it.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/units.h"
#include "variant/catalog.h"
#include "variant/cost.h"

namespace moetune {

inline const Catalog& built_in() {
  static const Catalog catalog;
  return catalog;
}

inline const Variant& find_variant(std::string_view name) { return *built_in().find(name); }

/// The built-in variant that a file of constants names, with a cost model of these constants.
inline VariantPtr with_constants(const JsonAt& json) {
  const auto make = json["variant"].string() == "mma" ? mma_variant : wgmma_variant;
  return std::make_shared<const Variant>(make(constants_from_json(json)));
}

inline Candidate candidate_of(std::string_view variant, std::vector<int> values) {
  return {.variant = built_in().find(variant), .values = std::move(values)};
}
inline Candidate parse_partial_candidate(std::string_view text) { return parse_partial_candidate(text, built_in()); }

/// With what files from before had for knobs that the text doesn't name; -1 for those that every file has.
inline Candidate parse_candidate(std::string_view text, const Catalog& catalog = built_in()) {
  Candidate candidate = parse_partial_candidate(text, catalog);
  for (size_t i = 0; i < candidate.values.size(); ++i)
    if (candidate.values[i] == kUnset) candidate.values[i] = candidate.variant->knobs[i].absent;
  return candidate;
}

/// The text with the values of `base` for the knobs that it does not name.
inline std::string with_base(std::string candidate, const std::string& base) {
  for (const std::string& knob : split(base, ' '))
    if (candidate.find(" " + knob.substr(0, knob.find('=') + 1)) == std::string::npos) candidate += " " + knob;
  return candidate;
}

}  // namespace moetune
