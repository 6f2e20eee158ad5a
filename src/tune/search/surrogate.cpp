// Cholesky's decomposition, likelihood and estimates.
#include "tune/search/surrogate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace moetune {
namespace {

constexpr double kRelevances[] = {0.5, 0.25, 0.125, 0.0625};  // tried first, the same for all knobs
constexpr double kNoises[] = {1e-4, 1e-2, 0.1};
constexpr double kChange = 3;  // factor by which a knob's relevance is changed
constexpr double kMinRelevance = 1e-3, kMaxRelevance = 4;
constexpr double kLongestList = 4;  // the most that coordinates in a list of values differ by

using Triangle = std::vector<std::vector<double>>;  // rows of a lower triangle

// Solves L y = b in place, for as many rows as b has.
void solve_lower(const Triangle& factor, std::vector<double>& b) {
  for (size_t i = 0; i < b.size(); ++i) {
    const double* row = factor[i].data();
    for (size_t j = 0; j < i; ++j) b[i] -= row[j] * b[j];
    b[i] /= row[i];
  }
}

// Solves L' x = y in place.
void solve_upper(const Triangle& factor, std::vector<double>& y) {
  for (size_t i = y.size(); i-- > 0;) {
    y[i] /= factor[i][i];
    for (size_t j = 0; j < i; ++j) y[j] -= factor[i][j] * y[i];
  }
}

// Appends the row of a point to the decomposition: its covariances with those before it, and its own variance.
void append_row(Triangle& factor, std::vector<double> covariances, double variance) {
  constexpr double kLeast = 1e-12;
  solve_lower(factor, covariances);
  for (const double value : covariances) variance -= value * value;
  covariances.push_back(std::sqrt(std::max(variance, kLeast)));
  factor.push_back(std::move(covariances));
}

// The place of a value in the list, interpolated between two of its numbers.
double place_in_list(std::vector<int> values, int value) {
  std::erase(values, kLargestLegal);
  std::ranges::sort(values);
  if (values.size() < 2) return 0;
  const auto above = std::upper_bound(values.begin() + 1, values.end() - 1, value);
  const double low = *(above - 1), high = *above;
  const double place = static_cast<double>(above - values.begin() - 1) + (value - low) / (high - low);
  return place * std::min(1.0, kLongestList / static_cast<double>(values.size() - 1));
}

}  // namespace

Coordinates knob_coordinates(const VariantSpace& searched, const Candidate& candidate) {
  Coordinates point;
  for (size_t i = 0; i < searched.values.size(); ++i) {
    const std::vector<std::string>& words = candidate.variant->knobs[i].words;
    point.emplace_back();
    if (words.empty()) point.back().push_back(place_in_list(searched.values[i].second, candidate.values[i]));
    for (size_t word = 0; word < words.size(); ++word)
      point.back().push_back(static_cast<int>(word) == candidate.values[i] ? 0.5 : 0.0);
  }
  return point;
}

Surrogate::Surrogate(std::vector<Coordinates> points, std::vector<double> values, double sd,
                     std::vector<double> relevances, bool learns)
    : points_(std::move(points)), centred_(std::move(values)), relevances_(std::move(relevances)) {
  const auto count = static_cast<double>(centred_.size());
  mean_ = std::accumulate(centred_.begin(), centred_.end(), 0.0) / count;
  for (double& value : centred_) value -= mean_, variance_ += value * value / count;
  variance_ = std::max(variance_, sd * sd);
  choose(learns);
}

// First the noise, and one relevance for all knobs where no earlier fit gives them; then one knob after another.
void Surrogate::choose(bool learns) {
  const bool fresh = relevances_.empty();
  std::vector<double> best_relevances;
  double most = -std::numeric_limits<double>::infinity(), best_noise = 0;
  const auto keep_if_better = [&] {
    const double likelihood = fit();
    if (likelihood <= most) return false;
    most = likelihood, best_relevances = relevances_, best_noise = noise_;
    return true;
  };
  for (const double noise : kNoises) {
    noise_ = noise;
    if (!fresh) keep_if_better();
    for (const double relevance : kRelevances)
      if (fresh) relevances_.assign(points_[0].size(), relevance), keep_if_better();
  }
  noise_ = best_noise;
  for (size_t knob = 0; learns && knob < best_relevances.size(); ++knob)
    for (const double change : {1 / kChange, kChange}) {
      relevances_ = best_relevances;
      relevances_[knob] = std::clamp(relevances_[knob] * change, kMinRelevance, kMaxRelevance);
      if (keep_if_better()) break;
    }
  relevances_ = best_relevances;
  fit();
}

double Surrogate::kernel(const Coordinates& a, const Coordinates& b) const {
  double distance = 0;
  for (size_t knob = 0; knob < a.size(); ++knob)
    for (size_t i = 0; i < a[knob].size(); ++i) distance += relevances_[knob] * std::abs(a[knob][i] - b[knob][i]);
  return std::exp(-distance);
}

// With the first `points` of the points.
std::vector<double> Surrogate::covariances(const Coordinates& point, size_t points) const {
  std::vector<double> result(points);
  for (size_t i = 0; i < points; ++i) result[i] = variance_ * kernel(point, points_[i]);
  return result;
}

double Surrogate::fit() {
  factor_.clear();
  for (size_t i = 0; i < points_.size(); ++i) append_row(factor_, covariances(points_[i], i), variance_ * (1 + noise_));
  weights_ = centred_;
  solve_lower(factor_, weights_);
  double likelihood = -0.5 * std::inner_product(weights_.begin(), weights_.end(), weights_.begin(), 0.0);
  for (size_t i = 0; i < points_.size(); ++i) likelihood -= std::log(factor_[i][i]);
  solve_upper(factor_, weights_);
  return likelihood;
}

Prediction Surrogate::at(const Coordinates& point) const {
  std::vector<double> to_points = covariances(point, points_.size());
  const double mean = mean_ + std::inner_product(to_points.begin(), to_points.end(), weights_.begin(), 0.0);
  solve_lower(factor_, to_points);
  const double known = std::inner_product(to_points.begin(), to_points.end(), to_points.begin(), 0.0);
  return {mean, std::sqrt(std::max(variance_ - known, 0.0))};
}

void Surrogate::believe(const Coordinates& point) {
  const double value = at(point).mean - mean_;
  append_row(factor_, covariances(point, points_.size()), variance_ * (1 + noise_));
  points_.push_back(point);
  centred_.push_back(value);
  weights_ = centred_;
  solve_lower(factor_, weights_);
  solve_upper(factor_, weights_);
}

double expected_improvement(const Prediction& predicted, double best) {
  const double gain = best - predicted.mean;
  if (predicted.sd <= 0) return std::max(gain, 0.0);
  const double z = gain / predicted.sd;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  return gain * 0.5 * std::erfc(-z / std::numbers::sqrt2) + predicted.sd * density;
}

}  // namespace moetune
