// Medians, quantiles and their intervals.
#include "base/stats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <queue>

#include "base/random.h"

namespace moetune {
namespace {

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> values(samples.begin(), samples.end());
  std::ranges::sort(values);
  return values;
}

double quantile_of_sorted(std::span<const double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

struct Spread {
  double median = 0, deviations = 0;  // the sum of absolute deviations from the median
};

// The spread of samples that come one by one: two heaps meet at the median.
class RunningMedian {
 public:
  Spread add(double sample) {
    const bool is_low = low_.empty() || sample <= low_.top();
    is_low ? push(low_, low_sum_, sample) : push(high_, high_sum_, sample);
    if (low_.size() > high_.size() + 1) push(high_, high_sum_, pop(low_, low_sum_));
    if (low_.size() < high_.size()) push(low_, low_sum_, pop(high_, high_sum_));
    const double middle = low_.size() > high_.size() ? low_.top() : (low_.top() + high_.top()) / 2;
    const double more = static_cast<double>(low_.size()) - static_cast<double>(high_.size());
    return {middle, high_sum_ - low_sum_ + middle * more};
  }

 private:
  template <typename Heap>
  static void push(Heap& heap, double& sum, double sample) {
    heap.push(sample), sum += sample;
  }
  template <typename Heap>
  static double pop(Heap& heap, double& sum) {
    const double sample = heap.top();
    heap.pop(), sum -= sample;
    return sample;
  }

  std::priority_queue<double> low_;
  std::priority_queue<double, std::vector<double>, std::greater<>> high_;
  double low_sum_ = 0, high_sum_ = 0;
};

}  // namespace

Estimate operator*(double factor, const Estimate& estimate) {
  return {factor * estimate.value, factor * estimate.low, factor * estimate.high, estimate.samples};
}

Estimate operator/(double dividend, const Estimate& estimate) {
  return {dividend / estimate.value, dividend / estimate.high, dividend / estimate.low, estimate.samples};
}

Estimate operator/(const Estimate& dividend, const Estimate& divisor) {
  return {dividend.value / divisor.value, dividend.low / divisor.high, dividend.high / divisor.low};
}

Estimate& operator+=(Estimate& sum, const Estimate& term) {
  return sum = {sum.value + term.value, sum.low + term.low, sum.high + term.high};
}

double quantile(std::span<const double> samples, double q) { return quantile_of_sorted(sorted(samples), q); }

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

Estimate median_estimate(std::span<const double> samples, double confidence) {
  const std::vector<double> values = sorted(samples);
  const size_t n = values.size();
  if (n == 0) return {std::nan(""), std::nan(""), std::nan("")};
  // P(fewer than r samples below the median), binomial(n, 1/2), grows with r: take the largest r that keeps coverage.
  const double tail = (1 - confidence) / 2;
  // The terms are logarithms, because 2^-n underflows from n = 1075 on.
  double log_term = -static_cast<double>(n) * std::log(2.0);
  double below = std::exp(log_term);
  size_t r = 0;
  while (r < n / 2 && below <= tail) {
    ++r;
    log_term += std::log(static_cast<double>(n - r + 1) / static_cast<double>(r));
    below += std::exp(log_term);
  }
  // Here P(B <= r - 1) <= tail, so [x_(r), x_(n - r + 1)] (from 1) covers; r = 0 means that not even the range does.
  const size_t low = r == 0 ? 0 : r - 1;
  return {quantile_of_sorted(values, 0.5), values[low], values[n - 1 - low], static_cast<int>(n)};
}

Estimate bootstrap_median(std::span<const double> samples) {
  constexpr int kResamples = 2000;
  constexpr double kTail = (1 - 0.95) / 2;  // of resamples on either side of the interval
  if (samples.empty()) return {std::nan(""), std::nan(""), std::nan("")};
  Random random(1);
  std::vector<double> medians, draw(samples.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : draw) value = samples[random.below(samples.size())];
    medians.push_back(median(draw));
  }
  // With few samples the interval of resampled medians may miss the median itself by a rounding error.
  const double middle = median(samples);
  return {middle, std::min(quantile(medians, kTail), middle), std::max(quantile(medians, 1 - kTail), middle),
          static_cast<int>(samples.size())};
}

bool has_settled(std::span<const double> series, size_t window, double tolerance) {
  if (window == 0 || series.size() < 2 * window) return false;
  const double last = median(series.last(window));
  const double before = median(series.last(2 * window).first(window));
  return std::abs(last - before) <= tolerance * std::max(std::abs(last), std::abs(before));
}

double noise_of(std::span<const double> series, double least) {
  std::vector<double> steps;
  for (size_t i = 1; i < series.size(); ++i) steps.push_back(std::abs(series[i] - series[i - 1]));
  return steps.empty() ? least : std::max(least, median(steps) / (0.6745 * std::sqrt(2.0)));
}

std::vector<size_t> change_points(std::span<const double> series, double noise) {
  constexpr size_t kFewest = 3;  // samples of a level
  constexpr double kSure = 5;
  constexpr double kRounding = 1e-12;  // of running sums, as a part of all deviations
  if (series.size() < 2 * kFewest) return {};
  std::vector<Spread> before, after;  // of the first i + 1 samples; of the samples from the end back
  RunningMedian forwards, backwards;
  for (size_t i = 0; i < series.size(); ++i) {
    before.push_back(forwards.add(series[i] - series[0]));  // small sums round little
    after.push_back(backwards.add(series[series.size() - 1 - i] - series[0]));
  }
  const double rounding = kRounding * before.back().deviations;
  double least = std::numeric_limits<double>::infinity(), step = 0;
  size_t split = 0;
  for (size_t left = kFewest; left + kFewest <= series.size(); ++left) {
    const Spread &one = before[left - 1], &other = after[series.size() - left - 1];
    const double rest = one.deviations + other.deviations, its_step = std::abs(one.median - other.median);
    if (rest < least - rounding || (rest <= least + rounding && its_step > step))
      least = rest, step = its_step, split = left;
  }
  const auto left = static_cast<double>(split), right = static_cast<double>(series.size()) - left;
  if (split == 0 || step * std::sqrt(2 / std::numbers::pi * left * right / (left + right)) <= kSure * noise) return {};
  std::vector<size_t> points = change_points(series.first(split), noise);
  points.push_back(split);
  for (const size_t later : change_points(series.subspan(split), noise)) points.push_back(split + later);
  return points;
}

double half_width(const Estimate& estimate) { return (estimate.high - estimate.low) / 2; }

double log_half_width(const Estimate& estimate) {
  if (!(estimate.low > 0 && estimate.high >= estimate.low)) return std::numeric_limits<double>::infinity();
  return std::log(estimate.high / estimate.low) / 2;
}

double geometric_mean(std::span<const double> samples) {
  double sum = 0;
  for (const double sample : samples) sum += std::log(sample);
  return samples.empty() ? std::nan("") : std::exp(sum / static_cast<double>(samples.size()));
}

}  // namespace moetune
