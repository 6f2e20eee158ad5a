// Asks in generations: first a race among the best so far, then the most promising candidates near them.
#include "tune/search/strategy.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "base/stats.h"
#include "tune/search/surrogate.h"

namespace moetune {
namespace {

constexpr int64_t kSmall = 48;         // a domain with no more candidates is tried whole
constexpr size_t kModelsBest = 12;     // first candidates by the variants' models
constexpr size_t kModelsBestNear = 8;  // the same, with a winner near the cell
constexpr uint64_t kStream = 0xa070;   // of random numbers
constexpr int64_t kGeneration = 8;     // candidates asked for at a time
constexpr size_t kLeaders = 5;         // fastest candidates of a variant, whose neighbours are considered
constexpr int kKicked = 16;            // random candidates some knobs away from each leader
constexpr double kRivalVariant = 1.3;  // a variant is searched while its best over the best of all is less
constexpr int kSteps = 8;              // from the most promising candidate to its neighbours
constexpr int kFirstBlocks = 2;
constexpr int kMoreBlocks = 2;
constexpr int kRaceBlocks = 6;    // of a candidate at most, while the search goes on
constexpr int kFinalBlocks = 12;  // the same, at its end
constexpr size_t kRacers = 4;
constexpr double kUsualNoise = 0.005;
constexpr double kSlowest = 0.5;         // logarithm of the time over the best: slower candidates count as this slow
constexpr double kSlowestUnknown = 0.3;  // the same of a variant without a model
constexpr double kUnknown = 1;           // assumed standard deviation of a variant without a model
constexpr double kKnown = 0.05;          // the same for other variants
constexpr double kSmallestGain = 1e-3;   // least expected gain for which a candidate is tried
constexpr double kModestGain = 3e-3;     // the same, once patience ends
constexpr int64_t kListed = 4096;        // a domain without models and with no more candidates is weighed whole
constexpr int64_t kDrawn = 8;            // random candidates of such a domain that are tried first

struct Effort {
  int64_t fewest, max;
  int64_t patience;  // candidates without a gain
};
constexpr Effort kFirst = {.fewest = 32, .max = 64, .patience = 10};
constexpr Effort kNear = {.fewest = 32, .max = 32, .patience = 6};  // with a winner near the cell

// If no variant has a cost model: an eighth of the candidates, within limits.
Effort effort_without_model(int64_t candidates, bool near) {
  const int64_t fewest = std::clamp<int64_t>(candidates / 8, 32, 120) / (near ? 2 : 1);
  return {.fewest = fewest, .max = fewest + fewest / 4, .patience = near ? 12 : 24};
}

class Auto final : public Strategy {
 public:
  explicit Auto(const SearchSetting& setting)
      : problem_(setting.problem),
        device_(setting.device),
        domain_(setting.domain),
        random_(setting.seed, kStream),
        effort_(setting.warm.near ? kNear : kFirst) {
    first_.push_back(setting.fallback);
    const auto all = domain_->all(kSmall);
    if (all) {
      first_.insert(first_.end(), all->begin(), all->end());
    } else {
      for (const Candidate& candidate : setting.warm.candidates)
        if (auto near = domain_->nearest(candidate)) first_.push_back(std::move(*near));
      if (std::ranges::none_of(domain_->variants(), has_model)) list_all(setting.warm.near);
      const size_t best = setting.warm.near ? kModelsBestNear : kModelsBest;
      for (Candidate& candidate : predicted_fastest(*domain_, problem_, device_, first_, best))
        first_.push_back(std::move(candidate));
    }
    std::set<Candidate> once;
    std::erase_if(first_, [&](const Candidate& candidate) { return !once.insert(candidate).second; });
    if (all) effort_.max = std::ssize(first_);
  }

  std::optional<Ask> ask() override {
    if (queue_.empty() && 2 * unanswered_.size() <= planned_) plan();
    if (queue_.empty()) return std::nullopt;
    Ask next = std::move(queue_.front());
    queue_.pop_front();
    unanswered_.insert(next.candidate);
    return next;
  }

  void tell(const Trial& trial) override {
    unanswered_.erase(trial.candidate);
    Known& known = known_[trial.candidate];
    known.right = trial.status == Status::ok;
    known.logs.clear();
    for (const Block& block : trial.blocks) known.logs.push_back(std::log(block.seconds));
    if (known.right && known.logs.empty()) known.logs.push_back(std::log(trial.measurement.time.value));
    known.racer = {known.right ? median(known.logs) : 0, static_cast<int>(known.logs.size())};
  }

  std::vector<Candidate> likely(size_t count) const override {
    const std::vector<Candidate>& next = first_.empty() ? likely_ : first_;
    return {next.begin(), next.begin() + static_cast<std::ptrdiff_t>(std::min(count, next.size()))};
  }

  int64_t max_candidates() const override { return effort_.max; }

 private:
  struct Known {
    bool right = false;
    std::vector<double> logs;
    Racer racer;
  };
  struct Promise {
    Coordinates point;
    double modelled = 0;  // logarithm of its modelled time over that of the variant's fastest
    double gain = 0;      // expected, when it was last computed
  };
  // Untried candidates near the fastest of a variant. The surrogate predicts how far times differ from the model's.
  struct Near {
    Surrogate surrogate;
    std::map<Candidate, Promise> promises = {};

    double gain(const Promise& promise) const {
      const Prediction more = surrogate.at(promise.point);
      return expected_improvement({promise.modelled + more.mean, more.sd}, 0);
    }
  };
  // Relevances of a variant's knobs. They are learned again when there are a quarter more points.
  struct Learned {
    size_t points = 0;  // when they were learned
    std::vector<double> relevances;
  };
  using Ranked = std::vector<std::pair<const Candidate*, const Known*>>;

  static bool has_model(const VariantPtr& variant) { return variant->seconds != nullptr; }

  // Lists all candidates, where they aren't too many, and begins with random ones of them.
  void list_all(bool near) {
    if (auto all = domain_->all(kListed)) listed_ = std::move(*all);
    effort_ = effort_without_model(listed_.empty() ? kListed : std::ssize(listed_), near);
    std::vector<Candidate> left = listed_;
    for (int64_t i = 0; i < kDrawn && !left.empty(); ++i) {
      std::swap(left[random_.below(left.size())], left.back());
      first_.push_back(std::move(left.back()));
      left.pop_back();
    }
  }

  // Goes on when half of what it last asked for is answered: what is missing may be slow to compile.
  void plan() {
    const bool asks = begin() || race(kRaceBlocks) || (tried() < effort_.max && step());
    if (!asks && unanswered_.empty()) race(kFinalBlocks);
    planned_ = queue_.size();
  }

  // Candidates that are known or will be.
  int64_t tried() const {
    return std::ssize(known_) +
           std::ranges::count_if(unanswered_, [&](const Candidate& candidate) { return !known_.contains(candidate); });
  }

  bool begin() {
    for (const Candidate& candidate : first_)
      if (!known_.contains(candidate)) queue_.push_back({candidate, kFirstBlocks});
    first_.clear();
    return !queue_.empty();
  }

  // Candidates with right results, the fastest first.
  Ranked ranked() const {
    Ranked result;
    for (const auto& [candidate, known] : known_)
      if (known.right) result.emplace_back(&candidate, &known);
    std::ranges::stable_sort(result, {}, [](const auto& one) { return one.second->racer.median; });
    return result;
  }

  double noise() const {
    return block_noise(mapped(known_, [](const auto& one) { return one.second.logs; }), kUsualNoise);
  }

  // More blocks for those that may be the fastest, up to `most` each.
  bool race(int most) {
    const Ranked all = ranked();
    const double sd = noise();
    Ranked in;
    for (const auto& one : all)
      if (in.size() < kRacers && may_win(one.second->racer, all.front().second->racer, sd)) in.push_back(one);
    if (in.size() < 2) return false;
    for (const auto& [candidate, known] : in)
      if (known->racer.blocks < most && !unanswered_.contains(*candidate))
        queue_.push_back({*candidate, std::min(kMoreBlocks, most - known->racer.blocks)});
    return !queue_.empty();
  }

  // Whether the last candidates brought no gain.
  bool has_stalled(double best) {
    const int64_t tried = std::ssize(known_);
    if (!marked_ || best < *marked_ - std::max(2 * kSmallestGain, noise() / 2)) marked_ = best, tried_then_ = tried;
    return tried >= effort_.fewest && tried - tried_then_ >= effort_.patience;
  }

  // Asks for the most promising candidates one by one, each as if the times of those before it were known. False where
  // none promises enough.
  bool step() {
    const Ranked all = ranked();
    const double best = all.empty() ? 0 : all.front().second->racer.median;
    std::vector<Near> nears;
    for (const VariantPtr& variant : domain_->variants()) {
      const Ranked own = filtered(all, [&](const auto& one) { return one.first->variant->name == variant->name; });
      if (!own.empty() && own.front().second->racer.median < best + std::log(kRivalVariant))
        nears.push_back(look_near(own, best));
    }
    const int64_t room = std::min(kGeneration, effort_.max - tried());
    const double least = std::max(has_stalled(best) ? kModestGain : kSmallestGain, noise() / 4);
    // What was compiled ahead comes first, while it still promises enough.
    for (const Candidate& candidate : likely_)
      if (std::ssize(queue_) < room && take(nears, candidate, least)) queue_.push_back({candidate, kFirstBlocks});
    while (std::ssize(queue_) < room) {
      const bool must = tried() + std::ssize(queue_) < effort_.fewest;
      std::optional<Candidate> next = take_best(nears, must ? 0 : least);
      if (!next) break;
      queue_.push_back({std::move(*next), kFirstBlocks});
    }
    likely_.clear();
    for (int64_t i = 0; i < kGeneration; ++i)
      if (auto next = take_best(nears, least)) likely_.push_back(std::move(*next));
    return !queue_.empty();
  }

  // Takes a candidate out where its expected gain is at least `least`.
  static bool take(std::vector<Near>& nears, const Candidate& candidate, double least) {
    for (Near& near : nears) {
      const auto found = near.promises.find(candidate);
      if (found == near.promises.end()) continue;
      if (near.gain(found->second) < least) return false;
      near.surrogate.believe(found->second.point);
      near.promises.erase(found);
      return true;
    }
    return false;
  }

  // Takes the most promising candidate out. Gains only fall as more is believed, so the largest stored gain is the best
  // once it is up to date.
  static std::optional<Candidate> take_best(std::vector<Near>& nears, double least) {
    for (;;) {
      Near* from = nullptr;
      std::map<Candidate, Promise>::iterator best;
      for (Near& near : nears)
        for (auto it = near.promises.begin(); it != near.promises.end(); ++it)
          if (!from || it->second.gain > best->second.gain) from = &near, best = it;
      if (!from || best->second.gain < least) return std::nullopt;
      const double gain = from->gain(best->second);
      if (gain < best->second.gain) {
        best->second.gain = gain;
        continue;
      }
      from->surrogate.believe(best->second.point);
      Candidate candidate = best->first;
      from->promises.erase(best);
      return candidate;
    }
  }

  // Neighbours of a variant's fastest candidates, random ones some knobs away, then neighbours of the most promising.
  Near look_near(const Ranked& own, double best) {
    const Candidate& fastest = *own.front().first;
    Near near{.surrogate = fit(fastest, best)};
    for (const Candidate& candidate : unanswered_)
      if (same_variant(candidate, fastest) && !known_.contains(candidate))
        near.surrogate.believe(coordinates(candidate));
    std::set<Candidate> works;  // one of all candidates that do the same work is enough
    for (const auto& [candidate, known] : known_) works.insert(canonical(candidate));
    for (const Candidate& candidate : unanswered_) works.insert(canonical(candidate));
    const auto add = [&](const Candidate& candidate) {
      if (near.promises.contains(candidate) || !works.insert(canonical(candidate)).second) return;
      Promise promise{.point = coordinates(candidate), .modelled = modelled_above(candidate, fastest)};
      promise.gain = near.gain(promise);
      near.promises[candidate] = std::move(promise);
    };
    for (const std::vector<Candidate>* list : {&likely_, &listed_})
      for (const Candidate& candidate : *list)
        if (same_variant(candidate, fastest)) add(candidate);
    for (size_t i = 0; i < std::min(own.size(), kLeaders); ++i) {
      for (const Candidate& neighbour : neighbours_of(*own[i].first)) add(neighbour);
      for (int kick = 0; kick < kKicked; ++kick)
        if (const auto other = domain_->kicked(*own[i].first, 2 + kick % 3, random_)) add(*other);
    }
    std::set<Candidate> left;
    for (int step = 0; step < kSteps; ++step) {
      const Candidate* next = nullptr;
      double max_gain = 0;
      for (const auto& [candidate, promise] : near.promises)
        if (promise.gain > max_gain && !left.contains(candidate)) next = &candidate, max_gain = promise.gain;
      if (!next) break;
      left.insert(*next);
      for (const Candidate& neighbour : neighbours_of(*next)) add(neighbour);
    }
    return near;
  }

  Coordinates coordinates(const Candidate& candidate) const {
    return knob_coordinates(domain_->values_of(candidate), candidate);
  }

  const Candidate& canonical(const Candidate& candidate) {
    const auto [place, fresh] = canonical_.try_emplace(candidate, candidate);
    const Variant& variant = *candidate.variant;
    if (fresh && variant.canonical) place->second = variant.canonical(candidate, problem_);
    return place->second;
  }

  const std::vector<Candidate>& neighbours_of(const Candidate& candidate) {
    const auto [place, fresh] = neighbours_.try_emplace(candidate);
    if (fresh) place->second = domain_->neighbours(candidate);
    return place->second;
  }

  // The logarithm of a candidate's modelled time over another's; 0 without a model.
  double modelled_above(const Candidate& candidate, const Candidate& other) {
    const double above = modelled(candidate) - modelled(other);
    return std::clamp(above, -kSlowest, kSlowest);
  }
  double modelled(const Candidate& candidate) {
    const auto [place, fresh] = modelled_.try_emplace(candidate, 0);
    const Variant& variant = *candidate.variant;
    const double seconds = fresh && variant.seconds ? variant.seconds(candidate, problem_, device_) : 0;
    if (seconds > 0) place->second = std::log(seconds);
    return place->second;
  }

  // Fits logarithms of times over the best, minus what the model predicts. `fastest` is the fastest of its variant.
  Surrogate fit(const Candidate& fastest, double best) {
    const Variant& variant = *fastest.variant;
    const double slowest = variant.seconds ? kSlowest : kSlowestUnknown;
    std::vector<Coordinates> points;
    std::vector<double> values;
    for (const auto& [candidate, known] : known_) {
      if (!same_variant(candidate, fastest)) continue;
      points.push_back(coordinates(candidate));
      const double above = known.right ? std::min(known.racer.median - best, slowest) : slowest;
      values.push_back(above - modelled_above(candidate, fastest));
    }
    const double sd = variant.seconds ? kKnown : kUnknown;
    Learned& learned = learned_[variant.name];
    const bool again = 4 * points.size() >= 5 * learned.points;
    if (again) learned.points = points.size();
    Surrogate surrogate(std::move(points), std::move(values), sd, learned.relevances, again);
    learned.relevances = surrogate.relevances();
    return surrogate;
  }

  const Problem problem_;
  const DeviceInfo device_;
  std::shared_ptr<const Domain> domain_;
  Random random_;
  Effort effort_;
  std::vector<Candidate> first_;
  std::vector<Candidate> listed_;  // all candidates, where no variant has a model
  std::deque<Ask> queue_;
  std::vector<Candidate> likely_;  // to be asked for after those in the queue
  std::set<Candidate> unanswered_;
  size_t planned_ = 0;  // asks of the last plan
  std::map<Candidate, Known> known_;
  std::map<Candidate, std::vector<Candidate>> neighbours_;
  std::map<Candidate, double> modelled_;
  std::map<Candidate, Candidate> canonical_;
  std::map<std::string, Learned> learned_;  // by variant
  std::optional<double> marked_;            // the best when it last improved enough,
  int64_t tried_then_ = 0;                  // and how many candidates were tried then
};

}  // namespace

double block_noise(const std::vector<std::vector<double>>& logs, double usual) {
  constexpr size_t kEnough = 5;
  constexpr double kLeast = 2e-4;
  constexpr double kSdOfMedian = 1.4826;  // a normal distribution's standard deviation over its median deviation
  std::vector<double> differences;
  for (const std::vector<double>& one : logs)
    for (size_t i = 1; i < one.size(); ++i) differences.push_back(std::abs(one[i] - one[i - 1]));
  if (differences.size() < kEnough) return usual;
  return std::max(kLeast, kSdOfMedian * median(differences) / std::sqrt(2.0));
}

bool may_win(const Racer& racer, const Racer& fastest, double noise) {
  const auto doubt = [&](const Racer& one) { return 2 * noise / std::sqrt(static_cast<double>(one.blocks)); };
  return racer.median - doubt(racer) <= fastest.median + doubt(fastest);
}

std::unique_ptr<Strategy> make_auto(const SearchSetting& setting) { return std::make_unique<Auto>(setting); }

}  // namespace moetune
