// Predicts candidates from measured ones, by a Gaussian process over knobs. Knows nothing of devices.
#pragma once
#include <vector>

#include "variant/space/space.h"

namespace moetune {

/// Where a candidate lies, with a list of coordinates for each knob. Numbers differ by their steps in the lists of
/// values that are searched, whose ends differ by 4 at most; words differ by 1.
using Coordinates = std::vector<std::vector<double>>;
Coordinates knob_coordinates(const VariantSpace& searched, const Candidate& candidate);

struct Prediction {
  double mean = 0, sd = 0;
};

/// Regression by a Gaussian process (Rasmussen and Williams 2006, algorithm 2.1) with the kernel exp(-d), d the sum of
/// knobs' differences, each times its relevance. Relevances and noise are those of the highest marginal likelihood that
/// is found by changing one after another.
class Surrogate {
 public:
  /// `values[i]` was observed at `points[i]`; at least one. `sd` is the least standard deviation that values are
  /// thought to have. `relevances` of an earlier fit are where learning begins; may be empty. They are used as they are
  /// where `learns` is false, because learning takes most of the time.
  Surrogate(std::vector<Coordinates> points, std::vector<double> values, double sd, std::vector<double> relevances = {},
            bool learns = true);
  Prediction at(const Coordinates& point) const;
  /// Goes on as if the prediction at a point had been observed there, so that the next candidates lie elsewhere (the
  /// "kriging believer" of Ginsbourger, Le Riche and Carraro 2010).
  void believe(const Coordinates& point);
  const std::vector<double>& relevances() const { return relevances_; }

 private:
  double fit();  // the marginal likelihood, in the logarithm
  void choose(bool learns);
  double kernel(const Coordinates& a, const Coordinates& b) const;
  std::vector<double> covariances(const Coordinates& point, size_t points) const;

  std::vector<Coordinates> points_;
  std::vector<double> centred_;
  double mean_ = 0, variance_ = 0, noise_ = 0;  // noise as a fraction of the variance
  std::vector<double> relevances_;              // one per knob
  std::vector<std::vector<double>> factor_;     // Cholesky's decomposition: rows of the lower triangle
  std::vector<double> weights_;                 // of the kernel values, in the estimate
};

/// The expected value of how much lower than `best` a value is, 0 where it is higher (Jones, Schonlau and Welch 1998).
double expected_improvement(const Prediction& predicted, double best);

}  // namespace moetune
