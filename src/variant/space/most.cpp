// Tries values downwards, knob by knob.
#include "variant/space/most.h"

#include <utility>

namespace moetune {
namespace {

constexpr int kLargestMost = 16;

bool try_downwards(Candidate& candidate, std::vector<size_t> most, const Variant& variant, const Shape& shape,
                   const DeviceInfo& device) {
  if (most.empty()) return !variant.illegal(candidate, shape, device);
  const size_t place = most.back();
  most.pop_back();
  const std::vector<std::string>& words = variant.knobs[place].words;
  const auto legal_with = [&](int value) {
    candidate.values[place] = value;
    return try_downwards(candidate, most, variant, shape, device);
  };
  const int highest = words.empty() ? kLargestMost : static_cast<int>(words.size()) - 1;
  // Numbers that are illegal when small are illegal when large.
  if (words.empty() && !legal_with(2) && !legal_with(1)) return false;
  for (int value = highest; value >= (words.empty() ? 1 : 0); --value)
    if (legal_with(value)) return true;
  return false;
}

}  // namespace

bool resolve_most(Candidate& candidate, const Variant& variant, const Shape& shape, const DeviceInfo& device) {
  std::vector<size_t> most;
  for (size_t i = 0; i < candidate.values.size(); ++i)
    if (candidate.values[i] == kMost) most.push_back(i);
  return try_downwards(candidate, std::move(most), variant, shape, device);
}

}  // namespace moetune
