// The candidates of a space for each cell: all that are legal, or some drawn at random.
#pragma once
#include <memory>
#include <optional>

#include "variant/space/space.h"

namespace moetune {

/// Looks for legal candidates once for consecutive cells of the same shape: legality doesn't depend on rows.
class CandidateSource {
 public:
  /// `drawn` candidates at random for each cell, by `draw`; 0 = all of the space, by `enumerate`. With `prune` > 0
  /// those are left out that, by their variants' models, take more than `prune` times as long as the fastest.
  CandidateSource(SearchSpace space, DeviceInfo device, int64_t drawn = 0, double prune = 0);

  const SearchSpace& space() const { return space_; }
  /// Whether `candidates` works: the space is drawn from, or small enough to list.
  bool can_list() const { return drawn_ > 0 || is_listable(space_, device_); }

  /// `seed` is for those drawn. Exit::request where all are asked for and the space is too large. Two calls that return
  /// the same object found the same candidates.
  std::shared_ptr<const Enumeration> candidates(const Shape& shape, uint64_t seed);
  /// The same for a problem's shape, and pruned.
  std::shared_ptr<const Enumeration> candidates(const Problem& problem, uint64_t seed);

 private:
  SearchSpace space_;
  DeviceInfo device_;
  int64_t drawn_;
  double prune_;
  std::optional<Shape> shape_;
  uint64_t seed_ = 0;
  std::shared_ptr<const Enumeration> found_;
};

}  // namespace moetune
