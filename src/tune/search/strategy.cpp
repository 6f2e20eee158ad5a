// Strategies by name, and those that fix their order at the start: exhaustive, random and model, whose candidates a
// best-first search over a domain finds by predicted times. Which cells are near another, of other layers too.
#include "tune/search/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

constexpr size_t kModelCandidates = 32;

class InOrder final : public Strategy {
 public:
  InOrder(const std::vector<Candidate>& order, int blocks) : blocks_(blocks) {
    std::set<Candidate> once;
    for (const Candidate& candidate : order)
      if (once.insert(candidate).second) order_.push_back(candidate);
  }

  std::optional<Ask> ask() override {
    while (next_ < order_.size()) {
      const Candidate& candidate = order_[next_++];
      if (!known_.contains(candidate)) return Ask{candidate, blocks_};
    }
    return std::nullopt;
  }

  void tell(const Trial& trial) override { known_.insert(trial.candidate); }
  std::vector<Candidate> likely(size_t count) const override {
    std::vector<Candidate> next;
    for (size_t i = next_; i < order_.size() && next.size() < count; ++i)
      if (!known_.contains(order_[i])) next.push_back(order_[i]);
    return next;
  }
  int64_t max_candidates() const override { return std::ssize(order_); }

 private:
  std::vector<Candidate> order_;
  int blocks_;
  std::set<Candidate> known_;
  size_t next_ = 0;
};

// The shuffle of Fisher and Yates, as Durstenfeld wrote it.
std::vector<Candidate> shuffled(std::vector<Candidate> candidates, uint64_t seed) {
  Random random(seed);
  for (size_t left = candidates.size(); left > 1; --left)
    std::swap(candidates[left - 1], candidates[random.below(left)]);
  return candidates;
}

constexpr size_t kMaxStarts = 12;
constexpr double kNearRows = 0.6;   // doublings
constexpr double kOtherFusion = 1;  // doublings that another fusion or dtype counts as

double mean_rows(const RoutingFigures& figures) {
  return static_cast<double>(figures.rows) / static_cast<double>(std::max<int64_t>(figures.active_experts, 1));
}

double distance_of_rows(const RoutingFigures& a, const RoutingFigures& b) {
  return std::hypot(doublings(mean_rows(a), mean_rows(b)), doublings(a.max_over_mean, b.max_over_mean));
}

double distance_of_shapes(const Shape& a, const Shape& b) {
  const auto size = [](int64_t x, int64_t y) { return doublings(static_cast<double>(x), static_cast<double>(y)); };
  return size(a.layer.n, b.layer.n) + size(a.layer.k, b.layer.k) +
         (a.fusion != b.fusion || a.layer.format != b.layer.format ? kOtherFusion : 0);
}

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

const std::vector<StrategyText>& strategies() {
  static const std::vector<StrategyText> all = {
      {"auto", "the models' best first, then local search, racing by confidence intervals"},
      {"exhaustive", "every candidate of the space"},
      {"model", fmt::format("the {} candidates that the variants' models put first", kModelCandidates)},
      {"random", "candidates of the space in a random order of the seed"}};
  return all;
}

std::vector<std::string> strategy_names() { return mapped<std::string>(strategies(), &StrategyText::name); }

void require_strategy(const std::string& name) { place_of_word("strategy", name, strategy_names()); }

bool lists_candidates(const std::string& strategy) { return strategy == "exhaustive" || strategy == "random"; }

std::unique_ptr<Strategy> make_strategy(const std::string& name, const SearchSetting& setting) {
  require_strategy(name);
  if (name == "auto") return make_auto(setting);
  std::vector<Candidate> order = name == "model" ? predicted_fastest(*setting.domain, setting.problem, setting.device,
                                                                     {setting.fallback}, kModelCandidates)
                                                 : setting.listed->legal;
  if (name == "random") order = shuffled(std::move(order), setting.seed);
  if (name != "model" || order.empty()) order.insert(order.begin(), setting.fallback);
  return std::make_unique<InOrder>(order, setting.blocks);
}

WarmStart warm_start(const Problem& problem, const std::vector<const Entry*>& entries) {
  const RoutingFigures asked = figures(problem.routing);
  std::vector<std::pair<double, const Entry*>> ranked;
  WarmStart start;
  for (const Entry* entry : entries) {
    const Shape& shape = entry->cell.shape;
    if (!entry->skipped.empty() || shape.op != problem.shape.op) continue;
    if (bits(shape.layer.format.w.dtype) != bits(problem.shape.layer.format.w.dtype)) continue;
    const double rows = distance_of_rows(asked, entry->figures), shapes = distance_of_shapes(problem.shape, shape);
    ranked.emplace_back(rows + shapes, entry);
    start.near = start.near || (shapes == 0 && rows <= kNearRows);
  }
  std::ranges::stable_sort(ranked, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [distance, entry] : ranked)
    if (start.candidates.size() < kMaxStarts) add_once(start.candidates, entry->candidate);
  return start;
}

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
  std::ranges::sort(ranked, [](const Predicted& a, const Predicted& b) { return b > a; });
  std::vector<Candidate> result;
  for (const auto& [seconds, ranked_candidate] : ranked) {
    if (result.size() == count) break;
    Candidate candidate = plain(ranked_candidate);
    const bool alike = std::ranges::any_of(
        result, [&](const Candidate& other) { return different_knobs(candidate, other) < kDifferentKnobs; });
    if (!alike) result.push_back(std::move(candidate));
  }
  return result;
}

}  // namespace moetune
