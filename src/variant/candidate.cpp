// Candidates as text and JSON: loops over the list of knobs that the variant owns.
#include "variant/candidate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/units.h"
#include "variant/pack/pack.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr int kMaxKnobValue = 1 << 20;

Candidate unset_candidate(const Variant& variant) {
  return {.variant = variant.name, .values = std::vector<int>(variant.knobs.size(), kUnset)};
}

void set_absent_values(Candidate& candidate, const Variant& variant) {
  for (size_t i = 0; i < variant.knobs.size(); ++i) {
    if (candidate.values[i] != kUnset) continue;
    if (variant.knobs[i].absent == kNeeded)
      throw request_error(
          fmt::format("a candidate of '{}' needs a value for '{}'", candidate.variant, variant.knobs[i].name));
    candidate.values[i] = variant.knobs[i].absent;
  }
}

void add_retired(Candidate& candidate, const std::string& name, const std::string& value) {
  candidate.retired += fmt::format("{}{}={}", candidate.retired.empty() ? "" : " ", name, value);
}

// Records a value of a retired knob, unless the variant still does what it says.
void set_retired(Candidate& candidate, const RetiredKnob& knob, const std::string& value) {
  if (value != knob.value) add_retired(candidate, knob.name, value);
}

const RetiredKnob* find_retired(const Variant& variant, std::string_view name) {
  for (const RetiredKnob& knob : variant.retired)
    if (knob.name == name) return &knob;
  return nullptr;
}

void set_from_text(Candidate& candidate, const Variant& variant, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos)
    throw request_error(fmt::format("'{}' in a candidate must be knob=value", assignment));
  const std::string_view name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  if (const RetiredKnob* retired = find_retired(variant, name))
    return set_retired(candidate, *retired, std::string(value));
  const size_t place = knob_place(variant, name);
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

// Knobs that the variant hasn't, or no longer has.
void read_other_knobs(Candidate& candidate, const Variant& variant, const JsonAt& json) {
  for (const auto& item : json.value().items()) {
    const std::string& name = item.key();
    const bool known = name == "variant" || name == "pack" ||
                       std::ranges::any_of(variant.knobs, [&](const Knob& knob) { return knob.name == name; });
    if (known) continue;
    if (const RetiredKnob* retired = find_retired(variant, name))
      set_retired(candidate, *retired, value_text(json[name]));
    else
      add_retired(candidate, name, value_text(json[name]));
  }
}

// Whether the catalog has the variant, from a pack with this hash.
bool is_here(std::string_view name, std::string_view hash) {
  return std::ranges::any_of(variants(), [&](const Variant& variant) {
    return variant.name == name && variant.pack && variant.pack->hash == hash;
  });
}

// What a file says of a candidate whose pack is not in the catalog.
Candidate foreign_candidate(const JsonAt& json) {
  Candidate candidate{.variant = json["variant"].string(), .values = {}};
  candidate.foreign.emplace_back("pack", json["pack"].string());
  for (const auto& [name, value] : json.value().items()) {
    if (name == "variant" || name == "pack") continue;
    candidate.foreign.emplace_back(
        name, value.is_string() ? json[name].string() : std::to_string(json[name].integer(0, kMaxKnobValue)));
  }
  return candidate;
}

}  // namespace

std::string knob_text(const Knob& knob, int value) {
  if (value >= 0 && value < static_cast<int>(knob.words.size())) return knob.words[static_cast<size_t>(value)];
  return std::to_string(value);
}

int parse_knob(const Knob& knob, std::string_view text) {
  if (knob.words.empty()) return static_cast<int>(parse_integer(text, knob.name, 0, kMaxKnobValue));
  const auto found = std::find(knob.words.begin(), knob.words.end(), text);
  if (found != knob.words.end()) return static_cast<int>(found - knob.words.begin());
  throw unknown_word(fmt::format("value for {}", knob.name), text, knob.words);
}

int knob_from_json(const Knob& knob, const JsonAt& json) {
  return knob.words.empty() ? static_cast<int>(json.integer(0, kMaxKnobValue)) : parse_knob(knob, json.string());
}

std::optional<int> find_value(const Candidate& candidate, std::string_view knob) {
  if (candidate.variant.empty()) return std::nullopt;
  for (const auto& [name, value] : candidate.foreign)
    if (name == knob && is_number(value)) return std::stoi(value);
  if (!candidate.foreign.empty()) return std::nullopt;
  const Variant& variant = find_variant(candidate.variant);
  for (size_t i = 0; i < variant.knobs.size(); ++i)
    if (variant.knobs[i].name == knob) return candidate.values[i];
  return std::nullopt;
}

std::optional<int> block_m_of(const Candidate& candidate) {
  const auto ours = find_value(candidate, "block_m");
  return ours ? ours : find_value(candidate, "BLOCK_SIZE_M");
}

std::optional<int> block_n_of(const Candidate& candidate) {
  const auto ours = find_value(candidate, "block_n");
  return ours ? ours : find_value(candidate, "BLOCK_SIZE_N");
}

std::vector<std::pair<std::string, std::string>> knob_words(const Candidate& candidate) {
  if (!candidate.foreign.empty()) return {candidate.foreign.begin() + 1, candidate.foreign.end()};
  const Variant& variant = find_variant(candidate.variant);
  std::vector<std::pair<std::string, std::string>> words;
  for (size_t i = 0; i < variant.knobs.size(); ++i)
    words.emplace_back(variant.knobs[i].name, knob_text(variant.knobs[i], candidate.values[i]));
  return words;
}

Candidate with_value(Candidate candidate, std::string_view knob, int value) {
  candidate.values[knob_place(find_variant(candidate.variant), knob)] = value;
  return candidate;
}

std::string text(const Candidate& candidate) {
  const std::string knobs =
      difference(candidate, candidate.foreign.empty() ? unset_candidate(find_variant(candidate.variant))
                                                      : Candidate{.variant = candidate.variant, .values = {}});
  return knobs.empty() ? candidate.variant : fmt::format("{} {}", candidate.variant, knobs);
}

std::string difference(const Candidate& candidate, const Candidate& from) {
  if (candidate.variant != from.variant) return text(candidate);
  const auto before = from.values.empty() && from.foreign.empty() ? decltype(knob_words(from))() : knob_words(from);
  std::vector<std::string> words;
  for (const auto& [name, value] : knob_words(candidate))
    if (std::ranges::find(before, std::pair(name, value)) == before.end())
      words.push_back(fmt::format("{}={}", name, value));
  if (candidate.retired != from.retired) words.push_back(candidate.retired);
  return fmt::format("{}", fmt::join(words, " "));
}

Candidate parse_partial_candidate(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::vector<std::string> words = split(spaced, ' ');
  std::erase(words, "");
  if (words.empty()) throw request_error("the candidate is empty", "write it as 'mma block_m=128 block_n=128 ...'");
  const Variant& variant = find_variant(words[0]);
  Candidate candidate = unset_candidate(variant);
  for (size_t i = 1; i < words.size(); ++i) set_from_text(candidate, variant, words[i]);
  return candidate;
}

Candidate parse_candidate(std::string_view text) {
  Candidate candidate = parse_partial_candidate(text);
  set_absent_values(candidate, find_variant(candidate.variant));
  return candidate;
}

Json to_json(const Candidate& candidate) {
  Json json = {{"variant", candidate.variant}};
  for (const auto& [name, value] : candidate.foreign)
    json[name] = name != "pack" && is_number(value) ? Json(std::stoi(value)) : Json(value);
  if (!candidate.foreign.empty()) return json;
  const Variant& variant = find_variant(candidate.variant);
  if (variant.pack) json["pack"] = variant.pack->hash;
  for (size_t i = 0; i < variant.knobs.size(); ++i) {
    const Knob& knob = variant.knobs[i];
    if (knob.words.empty())
      json[knob.name] = candidate.values[i];
    else
      json[knob.name] = knob_text(knob, candidate.values[i]);
  }
  for (const std::string& assignment : split(candidate.retired, ' '))
    if (const size_t equals = assignment.find('='); equals != std::string::npos) {
      const std::string value = assignment.substr(equals + 1);
      json[assignment.substr(0, equals)] = is_number(value) ? Json(std::stoi(value)) : Json(value);
    }
  return json;
}

Candidate candidate_from_json(const JsonAt& json) {
  if (json.has("pack") && !is_here(json["variant"].string(), json["pack"].string())) return foreign_candidate(json);
  const Variant& variant = find_variant(json["variant"].string());
  Candidate candidate = unset_candidate(variant);
  for (size_t i = 0; i < variant.knobs.size(); ++i) {
    const Knob& knob = variant.knobs[i];
    if (knob.absent == kNeeded || json.has(knob.name)) candidate.values[i] = knob_from_json(knob, json[knob.name]);
  }
  set_absent_values(candidate, variant);
  read_other_knobs(candidate, variant, json);
  return candidate;
}

}  // namespace moetune
