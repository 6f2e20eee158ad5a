// A search space: values per knob and variant; its legal candidates and the reasons for the others.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "variant/catalog.h"

namespace moetune {

struct VariantSpace {
  VariantPtr variant;
  std::vector<std::pair<std::string, std::vector<int>>> values = {};  // knob name -> values; all knobs of the variant
};

struct SearchSpace {
  std::string name;  // "quick", "full", the file, or "all"
  std::vector<VariantSpace> variants = {};
};

/// "all", the whole space; "quick" and others from configs/spaces, with all candidates of the packs in the catalog; or
/// a JSON file of the same form, with packs only if it names them. Unknown variants or knobs, missing knobs and wrong
/// values are errors that name the place.
SearchSpace load_space(const std::string& name_or_file, const Catalog& catalog);

/// All values that variants list for their knobs, called "all": the space where none is named. Packs come last, so that
/// the default candidate is of a built-in variant, where one takes the problem.
SearchSpace whole_space(const Catalog& catalog);
/// The same from JSON, without a name.
SearchSpace space_from_json(const JsonAt& json, const Catalog& catalog);

/// Keeps the named variants; one that the space lacks comes with all values that it lists for its knobs. An error for
/// an unknown variant.
void keep_variants(SearchSpace& space, const std::vector<std::string>& names, const Catalog& catalog);

/// Applies "block_m=64,128" (--set) to every variant that has the knob; an error where none has. With `more`, the
/// values join those of the space.
void set_values(SearchSpace& space, const std::string& assignment, const Catalog& catalog, bool more = false);

/// Replaces each "least" by the first value of its knob's list that leads to a legal candidate, and each kLargestLegal
/// by a value: values of the last such knob are tried downwards and, with each, values of the knobs before it. A number
/// counts down from its list's last; where that has kLargestLegal, from 16 to 1, and it is not tried any further if it
/// is illegal at 2 and at 1. False where no values are legal.
bool set_legal_values(Candidate& candidate, const Shape& shape, const DeviceInfo& device);

/// Throws Exit::request where no variant of the space is for such a device.
void require_variant(const SearchSpace& space, const DeviceInfo& device);

/// The candidate that is good without tuning: of the first variant in the space that takes this problem on this device.
/// Where none does, the first one's, which is illegal. Errors as of require_variant.
Candidate default_candidate(const SearchSpace& space, const Problem& problem, const DeviceInfo& device);

/// Candidates in lexicographic order of the value lists, with everything illegal left out and counted by reason.
/// "most" and "least" are resolved before, knob by knob.
struct Enumeration {
  std::vector<Candidate> legal;
  std::map<std::string, int64_t> pruned;  // reason -> how many; variants of another device kind are not counted
  int64_t total = 0;                      // legal + pruned
};
/// Exit::request, with the remedy, where a part of the space has over five million candidates: draw from that.
Enumeration enumerate(const SearchSpace& space, const Shape& shape, const DeviceInfo& device);

/// Whether enumerate takes the space; with `most`, whether it has no more candidates, legal or not.
bool is_listable(const SearchSpace& space, const DeviceInfo& device, std::optional<int64_t> most = {});

/// Throws where it doesn't.
void require_listable(const SearchSpace& space, const DeviceInfo& device);

/// Candidates at random, by `seed` alone, none twice, until `count` legal ones are found, the space is used up or
/// five million were looked at; total and pruned count those drawn. A larger `count` gives the same ones and
/// others after them. Shapes with the same legal candidates give the same.
Enumeration draw(const SearchSpace& space, const Shape& shape, const DeviceInfo& device, int64_t count, uint64_t seed);

/// Looks for legal candidates once for consecutive cells of the same shape: legality doesn't depend on rows.
class CandidateSource {
 public:
  /// `drawn` candidates at random for each cell, by `draw`; 0 = all of the space, by `enumerate`.
  CandidateSource(SearchSpace space, DeviceInfo device, int64_t drawn = 0);

  const SearchSpace& space() const { return space_; }
  /// Whether `candidates` works: the space is drawn from, or small enough to list.
  bool can_list() const { return drawn_ > 0 || is_listable(space_, device_); }

  /// `seed` is for those drawn. Exit::request where all are asked for and the space is too large. Two calls that return
  /// the same object found the same candidates.
  std::shared_ptr<const Enumeration> candidates(const Shape& shape, uint64_t seed);

 private:
  SearchSpace space_;
  DeviceInfo device_;
  int64_t drawn_;
  std::optional<Shape> shape_;
  uint64_t seed_ = 0;
  std::shared_ptr<const Enumeration> found_;
};

}  // namespace moetune
