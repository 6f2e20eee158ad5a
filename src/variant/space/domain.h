// The candidates of a space, found as neighbours of others: a search needs no list of all.
#pragma once
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "variant/space/space.h"

namespace moetune {

/// For one shape on one device. A knob whose value in the space is "most" gets its largest legal value anew in each
/// candidate that is found.
class Domain {
 public:
  /// Of the legal candidates, those in `only`; all, where it is empty.
  Domain(const SearchSpace& space, Shape shape, DeviceInfo device, std::set<Candidate> only = {});

  /// Whether a candidate has values of the space, and is legal.
  bool has(const Candidate& candidate) const;

  /// Legal candidates one step away, each once: a knob has the next number of its list, up or down, or another word.
  /// Where that is illegal, one other knob changes with it, by as few steps as make it legal; of several such knobs the
  /// first three are taken.
  std::vector<Candidate> neighbours(const Candidate& candidate) const;

  /// The candidate itself where the domain has it; else one with few knobs changed, nothing where none is found.
  std::optional<Candidate> nearest(const Candidate& candidate) const;

  /// A legal candidate of the same variant with up to `knobs` knobs set at random; nothing where none is found.
  std::optional<Candidate> kicked(const Candidate& candidate, int knobs, Random& random) const;

  /// The variants of the space that this device runs.
  std::vector<VariantPtr> variants() const;

  /// The values in the space of a candidate's variant, which this device runs.
  const VariantSpace& values_of(const Candidate& candidate) const { return *part_of(candidate); }

  /// All candidates, where the values make no more than `most` combinations, or `only` has no more.
  std::optional<std::vector<Candidate>> all(int64_t most) const;

 private:
  using Part = VariantSpace;
  const Part* part_of(const Candidate& candidate) const;
  std::optional<Candidate> settled(Candidate point) const;
  Candidate point_of(const Part& part, const Candidate& candidate) const;
  std::vector<Candidate> repaired(const Part& part, const Candidate& point, size_t changed, size_t most) const;

  Shape shape_;
  DeviceInfo device_;
  std::set<Candidate> only_;
  SearchSpace space_;  // what the device runs, numbers ascending, then kLargestLegal
};

}  // namespace moetune
