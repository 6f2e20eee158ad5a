// Strategies by name, and those that fix their order at the start: exhaustive, random and model.
#include "tune/search/strategy.h"

#include <fmt/format.h>

#include <algorithm>
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

}  // namespace moetune
