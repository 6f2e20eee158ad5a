// Which candidate to try next, and for how long. A strategy needs no device, so that it can be rehearsed on a recorded
// journal.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/measurement.h"
#include "record/table/table.h"
#include "variant/space/domain.h"
#include "workload/problem.h"

namespace moetune {

/// A request of a strategy: measure some blocks of a candidate, which is verified before the first.
struct Ask {
  Candidate candidate;
  int blocks = 1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next request. Nothing while it depends on results that are missing, and nothing at the end, when none is
  /// missing.
  virtual std::optional<Ask> ask() = 0;
  /// Hands over a candidate's trial with all of its blocks. Trials of a resumed run come without ask().
  virtual void tell(const Trial& trial) = 0;
  /// Candidates that it may ask for next, the likeliest first: they can be compiled ahead. At most `count`.
  virtual std::vector<Candidate> likely(size_t count) const = 0;
  /// The most candidates that it asks for.
  virtual int64_t max_candidates() const = 0;
};

struct WarmStart {
  std::vector<Candidate> candidates;  // the nearest cell's first, each once
  bool near = false;                  // whether a few more candidates will do
};

/// The winners of those twelve cells, of the same op and width of elements, that differ least from this one: in the
/// logarithm of the rows of the mean and of the largest expert, of n and k, and in fusions. One of the same shape with
/// at most 1.5 times the rows, or two thirds of them, is near.
WarmStart warm_start(const Problem& problem, const std::vector<const Entry*>& entries);

/// What a strategy may know of the cell that it searches.
struct SearchSetting {
  const Problem& problem;
  const DeviceInfo& device;
  Candidate fallback;                         // the default
  std::shared_ptr<const Enumeration> listed;  // of exhaustive and random; null otherwise
  std::shared_ptr<const Domain> domain;       // of auto and model; null otherwise
  WarmStart warm = {};                        // what won other cells; it may be illegal here
  int blocks = 5;                             // of a candidate, where the strategy doesn't race them
  uint64_t seed = 0;
};

/// "auto" is described at make_auto. "exhaustive" goes through all candidates in order, "random" in a random
/// order of `seed`, "model" through the 32 that the cost model expects to be the fastest. All but the last ask for
/// the default first. No strategy asks again for a candidate that `tell` had, except for more blocks of it.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const SearchSetting& setting);
struct StrategyText {
  std::string name, description;
};
const std::vector<StrategyText>& strategies();  // in the order in which they are listed
std::vector<std::string> strategy_names();
/// Exit::request, with the nearest name.
void require_strategy(const std::string& name);

/// Whether a strategy goes through a list of candidates, which is made first.
bool lists_candidates(const std::string& strategy);

/// Candidates of the domain that should be the fastest by their variants' models, at most `count`, the fastest first.
/// Each differs in two knobs or more from those before it: candidates for which the model expects the same time are
/// asked for once. They are found by a best-first search from `from`, whose first gives the values of knobs that make
/// no difference to the model. Variants without a model have none.
std::vector<Candidate> predicted_fastest(const Domain& domain, const Problem& problem, const DeviceInfo& device,
                                         const std::vector<Candidate>& from, size_t count);

/// Begins with the default, what won other cells, and what should be fast by the variants' models. From then on it fits
/// a Surrogate to the logarithm of the times, and asks for those neighbours of the best candidates, and others some
/// knobs away from them, that promise the largest expected improvement; it ends when that is too small to
/// measure, sooner when the last candidates brought none, or after 64 candidates (32 where a cell near it has a
/// winner). Where no variant has a model, it begins with random candidates, weighs all of the domain, and tries an
/// eighth of it: 32 to 150, half as many where a cell near it has a winner. A small domain is tried whole. Candidates
/// race (Maron and Moore 1994): all have a few blocks, and those that may still be the fastest get more.
std::unique_ptr<Strategy> make_auto(const SearchSetting& setting);

/// The median of a candidate's times, as a logarithm, and its number of blocks.
struct Racer {
  double median = 0;
  int blocks = 0;
};
/// The standard deviation of a block's logarithm, from differences of blocks that follow each other in one candidate;
/// robust against disturbed blocks. `usual` where there are fewer than five.
double block_noise(const std::vector<std::vector<double>>& logs, double usual);
/// Whether a racer may be as fast as the fastest, at two standard deviations of both.
bool may_win(const Racer& racer, const Racer& fastest, double noise);

}  // namespace moetune
