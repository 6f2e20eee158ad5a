// Tries values downwards, knob by knob.
#include "variant/variant.h"

#include <utility>

namespace moetune {
namespace {

constexpr int kLargestTried = 16;

bool try_downwards(Candidate& candidate, std::vector<size_t> open, const Shape& shape, const DeviceInfo& device) {
  const Variant& variant = *candidate.variant;
  if (open.empty()) return !variant.illegal(candidate, shape, device);
  const size_t place = open.back();
  open.pop_back();
  const std::vector<std::string>& words = variant.knobs[place].words;
  const auto legal_with = [&](int value) {
    candidate.values[place] = value;
    return try_downwards(candidate, open, shape, device);
  };
  const int highest = words.empty() ? kLargestTried : static_cast<int>(words.size()) - 1;
  // Numbers that are illegal when small are illegal when large.
  if (words.empty() && !legal_with(2) && !legal_with(1)) return false;
  for (int value = highest; value >= (words.empty() ? 1 : 0); --value)
    if (legal_with(value)) return true;
  return false;
}

}  // namespace

bool set_largest_legal(Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
  std::vector<size_t> open;
  for (size_t i = 0; i < candidate.values.size(); ++i)
    if (candidate.values[i] == kLargestLegal) open.push_back(i);
  return try_downwards(candidate, std::move(open), shape, device);
}

}  // namespace moetune
