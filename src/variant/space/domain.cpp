// Steps from candidate to candidate. A point is a candidate of which knobs may have the value kLargestLegal.
#include "variant/space/domain.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace moetune {
namespace {

constexpr size_t kRepairs = 3;  // knobs that may change along with one, each in its own candidate
constexpr int kKicks = 20;      // tries
constexpr int64_t kAnyDistance = 1000;

int64_t distance(const std::vector<int>& values, int from, int to) {
  const auto place = [&](int value) { return std::ranges::find(values, value) - values.begin(); };
  return std::abs(place(from) - place(to));
}

// The number of the list that is closest; the first word where the word isn't in it.
int closest(const std::vector<int>& values, const Knob& knob, int value) {
  if (contains(values, value)) return value;
  if (values.back() == kLargestLegal) return kLargestLegal;
  if (!knob.words.empty()) return values.front();
  return *std::ranges::min_element(values, [&](int a, int b) { return std::abs(a - value) < std::abs(b - value); });
}

// Values that a step leads to: the next ones of numbers, any other of words.
std::vector<int> steps_from(const std::vector<int>& values, const Knob& knob, int value) {
  return filtered(values, [&](int other) {
    return other != value && (!knob.words.empty() || distance(values, value, other) == 1);
  });
}

}  // namespace

Domain::Domain(const SearchSpace& space, Shape shape, DeviceInfo device, std::set<Candidate> only)
    : shape_(std::move(shape)), device_(std::move(device)), only_(std::move(only)), space_(space) {
  std::erase_if(space_.variants, [&](const Part& part) { return part.variant->device != device_.kind; });
  for (Part& part : space_.variants)
    for (auto& [knob, values] : part.values) {
      // kLargestLegal is the largest, but written as a negative number.
      std::ranges::sort(values, {}, [](int value) { return std::pair(value == kLargestLegal, value); });
      values.erase(std::unique(values.begin(), values.end()), values.end());
    }
}

// Null for candidates of a pack that is not here, another build of it included: their values are not known.
const Domain::Part* Domain::part_of(const Candidate& candidate) const {
  if (!candidate.variant || !candidate.foreign.empty()) return nullptr;
  for (const Part& part : space_.variants)
    if (part.variant->name == candidate.variant->name) return &part;
  return nullptr;
}

// The legal candidate that a point stands for.
std::optional<Candidate> Domain::settled(Candidate point) const {
  if (!set_legal_values(point, shape_, device_)) return std::nullopt;
  if (!only_.empty() && !only_.contains(point)) return std::nullopt;
  return point;
}

// The point that a candidate stands at, the closest where it lies outside. A value that is the largest legal one is
// kLargestLegal where the space has that.
Candidate Domain::point_of(const Part& part, const Candidate& candidate) const {
  Candidate point = candidate;
  for (size_t i = 0; i < point.values.size(); ++i) {
    const std::vector<int>& values = part.values[i].second;
    point.values[i] = closest(values, part.variant->knobs[i], point.values[i]);
    if (values.back() != kLargestLegal || point.values[i] == kLargestLegal) continue;
    Candidate largest = candidate;
    largest.values[i] = kLargestLegal;
    if (set_legal_values(largest, shape_, device_) && largest == candidate) point.values[i] = kLargestLegal;
  }
  return point;
}

bool Domain::has(const Candidate& candidate) const {
  const Part* part = part_of(candidate);
  return part && settled(point_of(*part, candidate)) == candidate;
}

// The legal candidates nearest to an illegal point, one for each other knob that can make it legal.
std::vector<Candidate> Domain::repaired(const Part& part, const Candidate& point, size_t changed, size_t most) const {
  std::vector<Candidate> result;
  for (size_t i = 0; i < part.values.size() && result.size() < most; ++i) {
    if (i == changed) continue;
    int64_t nearest = kAnyDistance;
    std::optional<Candidate> best;
    for (const int value : part.values[i].second) {
      const int64_t steps = distance(part.values[i].second, point.values[i], value);
      if (steps == 0 || steps >= nearest) continue;
      Candidate other = point;
      other.values[i] = value;
      if (auto legal = settled(std::move(other))) best = std::move(legal), nearest = steps;
    }
    if (best) result.push_back(std::move(*best));
  }
  return result;
}

std::vector<Candidate> Domain::neighbours(const Candidate& candidate) const {
  const Part* part = part_of(candidate);
  if (!part) return {};
  const Candidate point = point_of(*part, candidate);
  std::vector<Candidate> result;
  std::set<Candidate> known = {candidate};
  const auto add = [&](Candidate found) {
    if (known.insert(found).second) result.push_back(std::move(found));
  };
  for (size_t i = 0; i < part->values.size(); ++i)
    for (const int value : steps_from(part->values[i].second, part->variant->knobs[i], point.values[i])) {
      Candidate other = point;
      other.values[i] = value;
      if (auto legal = settled(other))
        add(std::move(*legal));
      else
        for (Candidate& repair : repaired(*part, other, i, kRepairs)) add(std::move(repair));
    }
  return result;
}

std::optional<Candidate> Domain::nearest(const Candidate& candidate) const {
  const Part* part = part_of(candidate);
  if (!part) return std::nullopt;
  const Candidate point = point_of(*part, candidate);
  if (auto legal = settled(point)) return legal;
  const size_t none = part->values.size();
  for (Candidate& repair : repaired(*part, point, none, 1)) return std::move(repair);
  for (size_t i = 0; i < part->values.size(); ++i)
    for (const int value : part->values[i].second) {
      Candidate other = point;
      other.values[i] = value;
      for (Candidate& repair : repaired(*part, other, i, 1)) return std::move(repair);
    }
  return std::nullopt;
}

std::optional<Candidate> Domain::kicked(const Candidate& candidate, int knobs, Random& random) const {
  const Part* part = part_of(candidate);
  if (!part) return std::nullopt;
  const Candidate point = point_of(*part, candidate);
  for (int attempt = 0; attempt < kKicks; ++attempt) {
    Candidate other = point;
    size_t last = 0;
    for (int i = 0; i < knobs; ++i) {
      last = random.below(part->values.size());
      other.values[last] = part->values[last].second[random.below(part->values[last].second.size())];
    }
    if (auto legal = settled(other)) return legal;
    for (Candidate& repair : repaired(*part, other, last, 1)) return std::move(repair);
  }
  return std::nullopt;
}

std::vector<VariantPtr> Domain::variants() const { return mapped(space_.variants, &Part::variant); }

std::optional<std::vector<Candidate>> Domain::all(int64_t most) const {
  if (!only_.empty()) {
    if (std::ssize(only_) > most) return std::nullopt;
    return filtered(only_, [this](const Candidate& candidate) { return has(candidate); });
  }
  if (!is_listable(space_, device_, most)) return std::nullopt;
  return enumerate(space_, shape_, device_).legal;
}

}  // namespace moetune
