// A best-first search over a domain by predicted times.
#include "tune/search/strategy.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "base/random.h"

namespace moetune {
namespace {

constexpr int64_t kWhole = 1 << 18;  // a domain with no more combinations is looked at whole
constexpr int kExpanded = 64;        // candidates whose neighbours are looked at
constexpr int kStarts = 16;          // random candidates around each of `from`
constexpr size_t kDifferentKnobs = 2;
constexpr uint64_t kSeed = 0x9205;

struct Predicted {
  double seconds = 0;
  Candidate candidate;
  bool operator>(const Predicted& other) const {
    return seconds != other.seconds ? seconds > other.seconds : other.candidate < candidate;
  }
};

size_t different_knobs(const Candidate& a, const Candidate& b) {
  if (!same_variant(a, b)) return a.values.size();
  size_t count = 0;
  for (size_t i = 0; i < a.values.size(); ++i) count += a.values[i] != b.values[i];
  return count;
}

double seconds_of(const Candidate& candidate, const Problem& problem, const DeviceInfo& device) {
  const Variant& variant = *candidate.variant;
  return variant.seconds ? variant.seconds(candidate, problem, device) : 0;
}

}  // namespace

std::vector<Candidate> predicted_fastest(const Domain& domain, const Problem& problem, const DeviceInfo& device,
                                         const std::vector<Candidate>& from, size_t count) {
  std::map<Candidate, double> seen;
  std::priority_queue<Predicted, std::vector<Predicted>, std::greater<>> next;
  // Leaves out a candidate whose modelled time is that of the one beside it.
  const auto look_at = [&](const Candidate& candidate, double beside) {
    if (seen.contains(candidate)) return;
    const double seconds = seconds_of(candidate, problem, device);
    if (seconds <= 0 || seconds == beside) return;
    seen[candidate] = seconds;
    next.push({seconds, candidate});
  };
  // Gives knobs that make no difference to the model the values of the first of `from`.
  const auto plain = [&](Candidate candidate) {
    if (from.empty() || !same_variant(from.front(), candidate)) return candidate;
    const double seconds = seconds_of(candidate, problem, device);
    for (bool changed = true; std::exchange(changed, false);)
      for (size_t i = 0; i < candidate.values.size(); ++i) {
        Candidate other = candidate;
        other.values[i] = from.front().values[i];
        if (other == candidate || !domain.has(other) || seconds_of(other, problem, device) != seconds) continue;
        candidate = std::move(other), changed = true;
      }
    return candidate;
  };
  const auto all = domain.all(kWhole);
  if (all)
    for (const Candidate& candidate : *all) look_at(candidate, 0);
  Random random(kSeed);
  for (const Candidate& start : all ? std::vector<Candidate>() : from) {
    const auto near = domain.nearest(start);
    if (!near) continue;
    look_at(*near, 0);
    for (int i = 0; i < kStarts; ++i)
      if (const auto kicked = domain.kicked(*near, 2 + i % 4, random)) look_at(plain(*kicked), 0);
  }
  for (int i = 0; i < kExpanded && !all && !next.empty(); ++i) {
    const Predicted best = next.top();
    next.pop();
    for (const Candidate& neighbour : domain.neighbours(best.candidate)) look_at(neighbour, best.seconds);
  }
  std::vector<Predicted> ranked;
  for (const auto& [candidate, seconds] : seen) ranked.push_back({seconds, candidate});
  std::sort(ranked.begin(), ranked.end(), [](const Predicted& a, const Predicted& b) { return b > a; });
  std::vector<Candidate> result;
  for (const auto& [seconds, ranked_candidate] : ranked) {
    if (result.size() == count) break;
    Candidate candidate = plain(ranked_candidate);
    const bool alike = std::any_of(result.begin(), result.end(), [&](const Candidate& other) {
      return different_knobs(candidate, other) < kDifferentKnobs;
    });
    if (!alike) result.push_back(std::move(candidate));
  }
  return result;
}

}  // namespace moetune
