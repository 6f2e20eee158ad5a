// Candidates as text and JSON: loops over the list of knobs that the variant owns.
#include "variant/candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json.h"
#include "base/text/units.h"
#include "variant/catalog.h"
#include "variant/pack/pack.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr int kMaxKnobValue = 1 << 20;

Candidate unset_candidate(const VariantPtr& variant) {
  return {.variant = variant, .values = std::vector<int>(variant->knobs.size(), kUnset)};
}

void set_from_text(Candidate& candidate, std::string_view assignment, const Catalog& catalog) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos)
    throw request_error(fmt::format("'{}' in a candidate must be knob=value", assignment));
  const std::string_view name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  const Variant& variant = *candidate.variant;
  const size_t place = catalog.knob_place(variant, name);
  candidate.values[place] = parse_knob(variant.knobs[place], value);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

// A value of a knob of which nothing is known, as text.
std::string value_text(const JsonAt& json) {
  if (!json.value().is_string()) return std::to_string(json.integer(0, kMaxKnobValue));
  if (json.string().empty() || json.string().find_first_of(" ,=") != std::string::npos)
    json.fail("expected a number or a word");
  return json.string();
}

// Knobs that the variant lacks.
void read_other_knobs(Candidate& candidate, const JsonAt& json) {
  const Variant& variant = *candidate.variant;
  for (const auto& item : json.value().items()) {
    const std::string& name = item.key();
    if (name == "variant" || name == "pack" || contains(variant.knobs, name, &Knob::name)) continue;
    candidate.unknown_knobs +=
        fmt::format("{}{}={}", candidate.unknown_knobs.empty() ? "" : " ", name, value_text(json[name]));
  }
}

// Whether the catalog has the variant, from a pack with this hash.
bool is_here(std::string_view name, std::string_view hash, const Catalog& catalog) {
  return std::ranges::any_of(catalog.variants(), [&](const VariantPtr& variant) {
    return variant->name == name && variant->pack && variant->pack->hash == hash;
  });
}

// What a file says of a candidate whose pack is not in the catalog.
Candidate foreign_candidate(const JsonAt& json) {
  const auto variant = std::make_shared<Variant>();
  variant->name = json["variant"].string();
  Candidate candidate{.variant = variant};
  candidate.foreign.emplace_back("pack", json["pack"].string());
  for (const auto& [name, value] : json.value().items()) {
    if (name == "variant" || name == "pack") continue;
    candidate.foreign.emplace_back(
        name, value.is_string() ? json[name].string() : std::to_string(json[name].integer(0, kMaxKnobValue)));
  }
  return candidate;
}

Candidate read_candidate(const JsonAt& json, const Catalog& catalog) {
  if (json.has("pack") && !is_here(json["variant"].string(), json["pack"].string(), catalog))
    return foreign_candidate(json);
  Candidate candidate = unset_candidate(catalog.find(json["variant"].string()));
  const std::vector<Knob>& knobs = candidate.variant->knobs;
  for (size_t i = 0; i < knobs.size(); ++i) {
    const bool known = knobs[i].absent == kNeeded || json.has(knobs[i].name);
    candidate.values[i] = known ? knob_from_json(knobs[i], json[knobs[i].name]) : knobs[i].absent;
  }
  read_other_knobs(candidate, json);
  return candidate;
}

std::optional<int> either(const Candidate& candidate, std::string_view ours, std::string_view triton) {
  const auto value = find_value(candidate, ours);
  return value ? value : find_value(candidate, triton);
}

std::string_view name_of(const VariantPtr& variant) { return variant ? std::string_view(variant->name) : ""; }

}  // namespace

std::strong_ordering Candidate::operator<=>(const Candidate& other) const {
  if (variant != other.variant)
    if (const auto order = name_of(variant) <=> name_of(other.variant); order != 0) return order;
  return std::tie(values, unknown_knobs, foreign) <=> std::tie(other.values, other.unknown_knobs, other.foreign);
}

bool same_variant(const Candidate& a, const Candidate& b) { return name_of(a.variant) == name_of(b.variant); }

std::string knob_text(const Knob& knob, int value) {
  if (value >= 0 && value < static_cast<int>(knob.words.size())) return knob.words[static_cast<size_t>(value)];
  return std::to_string(value);
}

int parse_knob(const Knob& knob, std::string_view text) {
  if (knob.words.empty()) return static_cast<int>(parse_integer(text, knob.name, 0, kMaxKnobValue));
  return static_cast<int>(place_of_word(fmt::format("value for {}", knob.name), text, knob.words));
}

int knob_from_json(const Knob& knob, const JsonAt& json) {
  return knob.words.empty() ? static_cast<int>(json.integer(0, kMaxKnobValue)) : parse_knob(knob, json.string());
}

std::optional<int> find_value(const Candidate& candidate, std::string_view knob) {
  for (const auto& [name, value] : candidate.foreign)
    if (name == knob && is_number(value)) return std::stoi(value);
  if (!candidate.variant) return std::nullopt;
  const std::vector<Knob>& knobs = candidate.variant->knobs;  // none of a foreign one
  for (size_t i = 0; i < knobs.size(); ++i)
    if (knobs[i].name == knob) return candidate.values[i];
  return std::nullopt;
}

std::optional<int> block_m_of(const Candidate& candidate) { return either(candidate, "block_m", "BLOCK_SIZE_M"); }
std::optional<int> block_n_of(const Candidate& candidate) { return either(candidate, "block_n", "BLOCK_SIZE_N"); }

std::vector<std::pair<std::string, std::string>> knob_words(const Candidate& candidate) {
  if (!candidate.foreign.empty()) return {candidate.foreign.begin() + 1, candidate.foreign.end()};
  std::vector<std::pair<std::string, std::string>> words;
  for (size_t i = 0; i < candidate.values.size(); ++i) {
    const Knob& knob = candidate.variant->knobs[i];
    words.emplace_back(knob.name, knob_text(knob, candidate.values[i]));
  }
  return words;
}

Candidate with_value(Candidate candidate, std::string_view knob, int value) {
  const std::vector<Knob>& knobs = candidate.variant->knobs;
  candidate.values.at(static_cast<size_t>(std::ranges::find(knobs, knob, &Knob::name) - knobs.begin())) = value;
  return candidate;
}

std::string text(const Candidate& candidate) {
  const std::string knobs = difference(candidate, candidate.foreign.empty() ? unset_candidate(candidate.variant)
                                                                            : Candidate{.variant = candidate.variant});
  const std::string& name = candidate.variant->name;
  return knobs.empty() ? name : fmt::format("{} {}", name, knobs);
}

std::string difference(const Candidate& candidate, const Candidate& from) {
  if (!same_variant(candidate, from)) return text(candidate);
  const auto before = from.values.empty() && from.foreign.empty() ? decltype(knob_words(from))() : knob_words(from);
  std::vector<std::string> words;
  for (const auto& [name, value] : knob_words(candidate))
    if (!contains(before, std::pair(name, value))) words.push_back(fmt::format("{}={}", name, value));
  if (candidate.unknown_knobs != from.unknown_knobs) words.push_back(candidate.unknown_knobs);
  return fmt::format("{}", fmt::join(words, " "));
}

Candidate parse_partial_candidate(std::string_view text, const Catalog& catalog) {
  std::string spaced(text);
  std::ranges::replace(spaced, ',', ' ');
  std::vector<std::string> words = split(spaced, ' ');
  std::erase(words, "");
  if (words.empty()) throw request_error("the candidate is empty", "write it as 'mma block_m=128 block_n=128 ...'");
  Candidate candidate = unset_candidate(catalog.find(words[0]));
  std::set<std::string> known;
  for (size_t i = 1; i < words.size(); ++i) {
    set_from_text(candidate, words[i], catalog);
    if (const std::string name = words[i].substr(0, words[i].find('=')); !known.insert(name).second)
      throw request_error(fmt::format("the candidate '{}' has two values for {}", text, name));
  }
  return candidate;
}

Json to_json(const Candidate& candidate) {
  Json json = {{"variant", candidate.variant->name}};
  for (const auto& [name, value] : candidate.foreign)
    json[name] = name != "pack" && is_number(value) ? Json(std::stoi(value)) : Json(value);
  if (!candidate.foreign.empty()) return json;
  const Variant& variant = *candidate.variant;
  if (variant.pack) json["pack"] = variant.pack->hash;
  for (size_t i = 0; i < variant.knobs.size(); ++i) {
    const Knob& knob = variant.knobs[i];
    json[knob.name] = knob.words.empty() ? Json(candidate.values[i]) : Json(knob_text(knob, candidate.values[i]));
  }
  for (const std::string& assignment : split(candidate.unknown_knobs, ' '))
    if (const size_t equals = assignment.find('='); equals != std::string::npos) {
      const std::string value = assignment.substr(equals + 1);
      json[assignment.substr(0, equals)] = is_number(value) ? Json(std::stoi(value)) : Json(value);
    }
  return json;
}

Candidate candidate_from_json(const JsonAt& json, const Catalog& catalog) {
  return with_place(json, [&](const JsonAt& at) { return read_candidate(at, catalog); });
}

}  // namespace moetune
