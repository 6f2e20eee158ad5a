// Robust statistics of samples. Knows nothing of what was sampled.
#pragma once
#include <span>
#include <vector>

namespace moetune {

/// A value and its 95 % interval: a time, a ratio, a change.
struct Estimate {
  double value = 0, low = 0, high = 0;
  int samples = 0;  // 0 = unknown
  bool operator==(const Estimate&) const = default;
};
Estimate operator*(double factor, const Estimate& estimate);
Estimate operator/(double dividend, const Estimate& estimate);
/// A ratio as uncertain as the two intervals allow: from low / high to high / low.
Estimate operator/(const Estimate& dividend, const Estimate& divisor);
/// The sum of the values, from the sum of the lows to the sum of the highs.
Estimate& operator+=(Estimate& sum, const Estimate& term);

/// Middle value (mean of the middle two). NaN for no samples.
double median(std::span<const double> samples);

/// Linear interpolation between order statistics, q in [0, 1]. NaN for no samples.
double quantile(std::span<const double> samples, double q);

/// The median with its distribution-free confidence interval from binomial order statistics (Conover, Practical
/// Nonparametric Statistics, 3.2). With too few samples for the confidence asked: the whole range.
Estimate median_estimate(std::span<const double> samples, double confidence = 0.95);

/// The median with its percentile bootstrap interval, 2000 draws from a fixed seed: the same input gives the same
/// interval.
Estimate bootstrap_median(std::span<const double> samples);

/// Whether a series has settled: it fills two windows, and the medians of its last two differ by at most
/// `tolerance` times the larger.
bool has_settled(std::span<const double> series, size_t window, double tolerance);

/// The standard deviation of a series around its level, from the median step between neighbours, which changes of the
/// level hardly touch: median(|x[i] - x[i-1]|) / (0.6745 sqrt(2)); at least `least`.
double noise_of(std::span<const double> series, double least);

/// Places where the level of a series changes, in order: the first sample of each new level. Binary segmentation (Scott
/// and Knott, Biometrics 1974; Vostrikova, Soviet Math. Dokl. 1981): the split that leaves the least sum of absolute
/// deviations from two medians is a change if the CUSUM statistic (Page, Biometrika 1954) of these medians,
/// |left - right| sqrt(2 / pi) sqrt(l r / (l + r)) / noise for l and r samples, is above 5; both sides are then split
/// again. Medians keep single outliers from counting. A level has three samples or more.
std::vector<size_t> change_points(std::span<const double> series, double noise);

/// Half the width of the interval; and of its logarithm: 0.01 means about 1 % to either side, infinite where there is
/// no logarithm.
double half_width(const Estimate& estimate);
double log_half_width(const Estimate& estimate);

/// exp of the mean of logs; all samples > 0. NaN for no samples.
double geometric_mean(std::span<const double> samples);

}  // namespace moetune
