// What measured candidates tell of others: a Gaussian process over knobs. Knows nothing of devices.
#pragma once
#include <functional>
#include <vector>

#include "variant/variant.h"

namespace moetune {

/// Where a candidate lies, a few coordinates a knob: numbers differ by their steps in the knob's list of values, four
/// at most from end to end of a long one; words differ by 1.
using Point = std::vector<std::vector<double>>;
Point knob_coordinates(const Variant& variant, const Candidate& candidate);

struct Estimate {
  double mean = 0, sd = 0;
};

/// Regression by a Gaussian process (Rasmussen and Williams 2006, algorithm 2.1) with the kernel exp(-d), d the sum of
/// knobs' differences, each times its relevance. Of a few relevances and shares of noise, those of the highest marginal
/// likelihood count, as far as changing one after another finds them.
class Surrogate {
 public:
  /// `values[i]` was observed at `points[i]`; at least one. `sd` is what values are thought to differ by, where those
  /// observed differ less. `relevances`, of an earlier fit, say where to begin; may be empty. They are taken as they
  /// are where `learns` is false: learning takes some fifty times as long as the rest.
  Surrogate(std::vector<Point> points, std::vector<double> values, double sd, std::vector<double> relevances = {},
            bool learns = true);
  Estimate at(const Point& point) const;
  /// Goes on as if the estimate at a point had been observed there: what is asked for beside it should lie elsewhere
  /// (the "kriging believer" of Ginsbourger, Le Riche and Carraro 2010).
  void believe(const Point& point);
  const std::vector<double>& relevances() const { return relevances_; }

 private:
  double fit();  // the marginal likelihood, in the logarithm
  void choose(bool learns);
  double kernel(const Point& a, const Point& b) const;
  std::vector<double> covariances(const Point& point, size_t points) const;

  std::vector<Point> points_;
  std::vector<double> centred_;
  double mean_ = 0, variance_ = 0, noise_ = 0;  // noise as a share of the variance
  std::vector<double> relevances_;              // of knobs
  std::vector<std::vector<double>> factor_;     // Cholesky's decomposition: rows of the lower triangle
  std::vector<double> weights_;                 // of the kernel values, in the estimate
};

/// How much lower than `best` a value is expected to be, counted as 0 where it is higher (Jones, Schonlau and Welch
/// 1998).
double expected_improvement(const Estimate& estimate, double best);

}  // namespace moetune
