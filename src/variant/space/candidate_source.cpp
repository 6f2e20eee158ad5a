// Remembers the candidates of the last shape.
#include "variant/space/candidate_source.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace moetune {

CandidateSource::CandidateSource(SearchSpace space, DeviceInfo device, int64_t drawn, double prune)
    : space_(std::move(space)), device_(std::move(device)), drawn_(drawn), prune_(prune) {}

std::shared_ptr<const Enumeration> CandidateSource::candidates(const Shape& shape, uint64_t seed) {
  if (!found_ || *shape_ != shape || (drawn_ > 0 && seed_ != seed)) {
    found_ = std::make_shared<const Enumeration>(drawn_ > 0 ? draw(space_, shape, device_, drawn_, seed)
                                                            : enumerate(space_, shape, device_));
    shape_ = shape, seed_ = seed;
  }
  return found_;
}

std::shared_ptr<const Enumeration> CandidateSource::candidates(const Problem& problem, uint64_t seed) {
  auto listed = candidates(problem.shape, seed);
  if (prune_ <= 0) return listed;
  std::vector<double> seconds;  // 0 = unknown
  for (const Candidate& candidate : listed->legal) {
    const Variant& variant = *candidate.variant;
    seconds.push_back(variant.seconds ? variant.seconds(candidate, problem, device_) : 0);
  }
  double least = 0;
  for (const double one : seconds)
    if (one > 0 && (least == 0 || one < least)) least = one;
  auto kept = std::make_shared<Enumeration>();
  kept->pruned = listed->pruned, kept->total = listed->total;
  const std::string reason = fmt::format("the model expects over {} times the time of the fastest candidate", prune_);
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] > prune_ * least)
      ++kept->pruned[reason];
    else
      kept->legal.push_back(listed->legal[i]);
  }
  return kept;
}

}  // namespace moetune
