// Robust statistics of samples. Knows nothing of what was sampled.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace moetune {

struct Interval {
  double low = 0, high = 0;
  bool operator==(const Interval&) const = default;
};

/// Middle value (mean of the middle two). NaN for no samples.
double median(std::span<const double> samples);

/// Linear interpolation between order statistics, q in [0, 1]. NaN for no samples.
double quantile(std::span<const double> samples, double q);

/// Distribution-free confidence interval of the median from binomial order statistics (Conover, Practical
/// Nonparametric Statistics, 3.2). With too few samples for the confidence asked: the whole range.
Interval median_interval(std::span<const double> samples, double confidence = 0.95);

/// Percentile bootstrap interval of the median, `resamples` draws from a fixed seed: the same input gives the same
/// interval.
Interval bootstrap_median_interval(std::span<const double> samples, double confidence = 0.95, int resamples = 2000,
                                   uint64_t seed = 1);

/// Whether a series has settled: it fills two windows, and the medians of its last two differ by at most
/// `tolerance` times the larger.
bool has_settled(std::span<const double> series, size_t window, double tolerance);

/// Half the width of the interval's logarithm: 0.01 means about 1 % to either side. Infinite where there is no
/// logarithm.
double log_half_width(const Interval& interval);

/// exp of the mean of logs; all samples > 0. NaN for no samples.
double geometric_mean(std::span<const double> samples);

}  // namespace moetune
