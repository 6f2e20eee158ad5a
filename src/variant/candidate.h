// A candidate: a variant and a value for each of that variant's knobs. Each variant lists its own knobs; here is how
// candidates become text and JSON, and back.
#pragma once
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace moetune {

class Catalog;
struct Variant;
using VariantPtr = std::shared_ptr<const Variant>;

/// For Knob::absent: a candidate without this knob is incomplete.
constexpr int kNeeded = -1;
/// The value of a knob that a partial candidate doesn't name.
constexpr int kUnset = -2;
/// A value of a space: the largest with which the candidate is legal. Written "most".
constexpr int kLargestLegal = -1;

/// One tunable number of a variant.
struct Knob {
  std::string name;
  std::string help;
  std::vector<std::string> words = {};  // for the values 0, 1, ...; empty where values are plain numbers
  std::vector<int> values = {};         // that a search tries; may contain kLargestLegal
  int absent = kNeeded;  // its value in texts and files from before there was such a knob, which don't name it
};

/// Ordered by the variant's name, then by the other members.
struct Candidate {
  VariantPtr variant = nullptr;  // null: no candidate
  std::vector<int> values = {};  // of the variant's knobs, in the order of its list
  // Space-separated knob=value of knobs that no kernel here has: those of other versions. A candidate with any can't
  // run.
  std::string unknown_knobs = {};
  // Of a pack that is not in the catalog of this run: "pack" and the hash of its manifest, then knobs and their values
  // as text. `values` is empty then and `variant` has a name alone: the candidate can be printed but not run.
  std::vector<std::pair<std::string, std::string>> foreign = {};

  std::strong_ordering operator<=>(const Candidate& other) const;
  bool operator==(const Candidate& other) const { return (*this <=> other) == 0; }
};

/// A knob's value as text ("128", "m") and back. Errors (Exit::request) name the words, or the range of numbers.
std::string knob_text(const Knob& knob, int value);
int parse_knob(const Knob& knob, std::string_view text);
int knob_from_json(const Knob& knob, const JsonAt& json);

/// Whether both are of variants of one name, or both of none.
bool same_variant(const Candidate& a, const Candidate& b);

/// The value of a knob by its name; nothing where the candidate's variant has no such knob, or where there
/// is no candidate.
std::optional<int> find_value(const Candidate& candidate, std::string_view knob);

/// Rows and columns of a candidate's tiles: its knobs block_m and block_n, or BLOCK_SIZE_M and BLOCK_SIZE_N of Triton
/// kernels. Nothing where it has neither.
std::optional<int> block_m_of(const Candidate& candidate);
std::optional<int> block_n_of(const Candidate& candidate);

/// Names and values of all knobs as text, in the order of the variant's list.
std::vector<std::pair<std::string, std::string>> knob_words(const Candidate& candidate);

/// The same candidate with another value of one of its knobs.
Candidate with_value(Candidate candidate, std::string_view knob, int value);

/// "mma block_m=128 block_n=256 ...": the knobs of its variant in the order of its list.
std::string text(const Candidate& candidate);

/// The knobs of `candidate` whose values differ from those of `from`, as in text(): "block_m=64 stages=4"; empty where
/// none do. The whole text where the variants differ.
std::string difference(const Candidate& candidate, const Candidate& from);

/// From "variant knob=value knob=value", separated by spaces or commas; kUnset where the text names nothing. Errors:
/// Exit::request, also for a knob with two values.
Candidate parse_partial_candidate(std::string_view text, const Catalog& catalog);

/// A candidate of a pack carries the hash of its manifest as "pack". It is read back as foreign where the catalog
/// lacks the pack, or has one of another hash. Knobs that its variant doesn't have are kept in `unknown_knobs`. Errors
/// name the place.
Json to_json(const Candidate& candidate);
Candidate candidate_from_json(const JsonAt& json, const Catalog& catalog);

}  // namespace moetune
