// Strategies by name, and those that fix their order at the start: exhaustive, random and model. Which cells are near
// another, of other layers too.
#include "tune/search/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
      if (!told_.contains(candidate)) return Ask{candidate, blocks_};
    }
    return std::nullopt;
  }

  void tell(const Trial& trial) override { told_.insert(trial.candidate); }
  std::vector<Candidate> likely(size_t count) const override {
    std::vector<Candidate> next;
    for (size_t i = next_; i < order_.size() && next.size() < count; ++i)
      if (!told_.contains(order_[i])) next.push_back(order_[i]);
    return next;
  }
  int64_t most_candidates() const override { return std::ssize(order_); }

 private:
  std::vector<Candidate> order_;
  int blocks_;
  std::set<Candidate> told_;
  size_t next_ = 0;
};

// The shuffle of Fisher and Yates, as Durstenfeld wrote it.
std::vector<Candidate> shuffled(std::vector<Candidate> candidates, uint64_t seed) {
  Random random(seed);
  for (size_t left = candidates.size(); left > 1; --left)
    std::swap(candidates[left - 1], candidates[random.below(left)]);
  return candidates;
}

constexpr size_t kMostStarts = 12;
constexpr double kNearRows = 0.6;   // doublings
constexpr double kOtherFusion = 1;  // doublings that another fusion or dtype counts as

double doublings(double a, double b) { return a > 0 && b > 0 ? std::abs(std::log2(a / b)) : 0; }

double mean_rows(const RoutingFigures& figures) {
  return static_cast<double>(figures.rows) / static_cast<double>(std::max<int64_t>(figures.active_experts, 1));
}

double distance_of_rows(const RoutingFigures& a, const RoutingFigures& b) {
  return std::hypot(doublings(mean_rows(a), mean_rows(b)), doublings(a.max_over_mean, b.max_over_mean));
}

double distance_of_shapes(const Shape& a, const Shape& b) {
  const auto size = [](int64_t x, int64_t y) { return doublings(static_cast<double>(x), static_cast<double>(y)); };
  return size(a.layer.n, b.layer.n) + size(a.layer.k, b.layer.k) +
         (a.fusion != b.fusion || a.layer.dtype != b.layer.dtype ? kOtherFusion : 0);
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

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyText& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

void require_strategy(const std::string& name) {
  const std::vector<std::string> names = strategy_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) throw unknown_word("strategy", name, names);
}

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
    if (size_bytes(shape.layer.dtype) != size_bytes(problem.shape.layer.dtype)) continue;
    const double rows = distance_of_rows(asked, entry->figures), shapes = distance_of_shapes(problem.shape, shape);
    ranked.emplace_back(rows + shapes, entry);
    start.near = start.near || (shapes == 0 && rows <= kNearRows);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [distance, entry] : ranked) {
    if (start.candidates.size() == kMostStarts) break;
    if (std::ranges::find(start.candidates, entry->candidate) == start.candidates.end())
      start.candidates.push_back(entry->candidate);
  }
  return start;
}

}  // namespace moetune
