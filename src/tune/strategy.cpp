// Strategies that fix their order at the start: exhaustive and random.
#include "tune/strategy.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

class InOrder final : public Strategy {
 public:
  explicit InOrder(std::vector<Candidate> order) : order_(std::move(order)) {}

  std::optional<Candidate> ask() override {
    while (next_ < order_.size()) {
      const Candidate& candidate = order_[next_++];
      if (known_.insert(candidate).second) return candidate;
    }
    return std::nullopt;
  }

  void tell(const Candidate& candidate, std::optional<double>) override { known_.insert(candidate); }

 private:
  std::vector<Candidate> order_;
  std::set<Candidate> known_;  // asked or told
  size_t next_ = 0;
};

// Fisher and Yates, as Durstenfeld wrote it.
std::vector<Candidate> shuffled(std::vector<Candidate> candidates, uint64_t seed) {
  Random random(seed);
  for (size_t left = candidates.size(); left > 1; --left)
    std::swap(candidates[left - 1], candidates[random.below(left)]);
  return candidates;
}

}  // namespace

std::vector<std::string> strategy_names() { return {"exhaustive", "random"}; }

std::unique_ptr<Strategy> make_strategy(const std::string& name, std::vector<Candidate> legal, uint64_t seed) {
  if (name == "exhaustive") return std::make_unique<InOrder>(std::move(legal));
  if (name == "random") return std::make_unique<InOrder>(shuffled(std::move(legal), seed));
  throw unknown_word("strategy", name, strategy_names());
}

}  // namespace moetune
