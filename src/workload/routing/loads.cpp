// Distributions of loads, and how they are rounded to whole rows.
#include "workload/routing/loads.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/random.h"

namespace moetune {
namespace {

constexpr uint64_t kLoadStream = 16;            // one stream for all experts
constexpr uint64_t kExpertStream = 1ull << 32;  // one stream an expert follows
constexpr int kBisections = 64;

double mean_of(int64_t total, size_t experts) { return static_cast<double>(total) / static_cast<double>(experts); }

// Divides the total in proportion to the weights, none over the cap; not yet rounded.
std::vector<double> capped_shares(const std::vector<double>& weights, double total, double cap) {
  std::vector<double> shares(weights.size());
  std::vector<bool> full(weights.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    double weight = 0, left = total;
    size_t open = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (full[i])
        left -= cap;
      else
        weight += weights[i], ++open;
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      if (full[i]) continue;
      shares[i] = weight > 0 ? left * weights[i] / weight : left / static_cast<double>(open);
      if (shares[i] > cap) shares[i] = cap, full[i] = changed = true;
    }
  }
  return shares;
}

// Loads of [1, 0.8 tokens] by the inverse of the power law's distribution function, density x^-a.
std::vector<double> powerlaw(double a, int64_t tokens, int64_t experts, uint64_t seed) {
  Random random(seed, kLoadStream);
  const double log_high = portable_log(std::max(2.0, 0.8 * static_cast<double>(tokens)));
  const double b = 1 - a;
  std::vector<double> loads(static_cast<size_t>(experts));
  for (double& load : loads) {
    const double u = random.uniform();
    // At a = 1 the integral of the density is a logarithm.
    load = std::abs(b) < 1e-9 ? portable_exp(u * log_high)
                              : portable_exp(portable_log(1 + u * (portable_exp(b * log_high) - 1)) / b);
  }
  return loads;
}

std::vector<double> normals(int64_t experts, uint64_t seed) {
  Random random(seed, kLoadStream);
  std::vector<double> values(static_cast<size_t>(experts));
  for (double& value : values) value = random.normal();
  return values;
}

// exp(skew * value), scaled so that the largest is 1: no overflow at any skew.
std::vector<double> exponentials(const std::vector<double>& values, double skew) {
  const double top = *std::ranges::max_element(values);
  return mapped(values, [&](double value) { return portable_exp(skew * (value - top)); });
}

// Logarithm of a gamma variate of any shape > 0 (Marsaglia and Tsang, 2000). Below 1: Gamma(a) = Gamma(a + 1) U^(1/a),
// returned as a logarithm because the value itself underflows.
double log_gamma_variate(double shape, Random& random) {
  const double boost = shape < 1 ? portable_log(random.uniform()) / shape : 0;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (v <= 0) continue;
    if (portable_log(random.uniform()) < 0.5 * x * x + d - d * v + d * portable_log(v))
      return boost + portable_log(d * v);
  }
}

// Symmetric Dirichlet with a tenth of uniform mixed in. Each expert has its own stream, so that
// a rejected variate doesn't change the others.
std::vector<double> dirichlet(double concentration, int64_t experts, uint64_t seed) {
  std::vector<double> logs;
  for (int64_t expert = 0; expert < experts; ++expert) {
    Random random(seed, kExpertStream + static_cast<uint64_t>(expert));
    logs.push_back(log_gamma_variate(concentration, random));
  }
  std::vector<double> weights = exponentials(logs, 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight = 0.9 * weight / sum + 0.1 / static_cast<double>(experts);
  return weights;
}

double inverse_simpson(const std::vector<double>& weights) {
  double sum = 0, squares = 0;
  for (const double weight : weights) sum += weight, squares += weight * weight;
  return sum * sum / squares;
}

// The weights, among those tried, whose measure is nearest the target. `measure` falls as the skew grows.
std::vector<double> bisect(double low, double high, double target,
                           const std::function<std::vector<double>(double)>& weights_at,
                           const std::function<double(const std::vector<double>&)>& measure) {
  std::vector<double> best;
  double best_distance = 0;
  for (int i = 0; i < kBisections; ++i) {
    const double skew = i == 0 ? low : i == 1 ? high : 0.5 * (low + high);
    std::vector<double> weights = weights_at(skew);
    const double found = measure(weights);
    const double distance = std::abs(found - target);
    if (best.empty() || distance < best_distance) best = std::move(weights), best_distance = distance;
    if (distance == 0) break;
    if (i >= 2) (found > target ? low : high) = skew;
  }
  return best;
}

std::vector<double> dirichlet_of_factor(double factor, int64_t experts, uint64_t seed) {
  // Skew is -log of the concentration: from nearly equal loads to one expert.
  return bisect(
      -8, 8, static_cast<double>(experts) / factor,
      [&](double skew) { return dirichlet(portable_exp(-skew), experts, seed); }, inverse_simpson);
}

std::vector<double> lognormal_of_max_over_mean(double ratio, int64_t tokens, int64_t experts, int64_t top_k,
                                               uint64_t seed) {
  const int64_t total = tokens * top_k;
  const std::vector<double> values = normals(experts, seed);
  const double mean = mean_of(total, values.size());
  return bisect(
      0, 64, -ratio, [&](double skew) { return exponentials(values, skew); },
      [&](const std::vector<double>& weights) {
        const std::vector<int32_t> rows = apportion(weights, total, tokens);
        return -*std::ranges::max_element(rows) / mean;
      });
}

// Equal rows; a remainder is spread evenly, so that ranks have equal rows too.
std::vector<int32_t> balanced(int64_t total, int64_t experts) {
  std::vector<int32_t> rows;
  for (int64_t e = 0; e < experts; ++e)
    rows.push_back(static_cast<int32_t>((e + 1) * total / experts - e * total / experts));
  return rows;
}

std::vector<int32_t> single(int64_t tokens, int64_t experts, int64_t top_k) {
  std::vector<int32_t> rows(static_cast<size_t>(experts), 0);
  std::fill_n(rows.begin(), top_k, static_cast<int32_t>(tokens));
  return rows;
}

}  // namespace

std::vector<int32_t> apportion(const std::vector<double>& weights, int64_t total, int64_t cap) {
  const std::vector<double> shares = capped_shares(weights, static_cast<double>(total), static_cast<double>(cap));
  std::vector<int32_t> rows(shares.begin(), shares.end());
  int64_t left = total - std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto fraction = [&](size_t i) { return shares[i] - std::floor(shares[i]); };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return fraction(a) > fraction(b); });
  // Usually one pass; rounding errors may need a second one, or take a row back.
  for (size_t i = 0; left > 0; i = (i + 1) % order.size())
    if (rows[order[i]] < cap) ++rows[order[i]], --left;
  for (size_t i = 0; left < 0; i = (i + 1) % order.size())
    if (int32_t& row = rows[order[order.size() - 1 - i]]; row > 0) --row, ++left;
  return rows;
}

std::vector<int32_t> draw_loads(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k,
                                uint64_t seed) {
  const int64_t total = tokens * top_k;
  if (spec.name == "balanced") return balanced(total, experts);
  if (spec.name == "single") return single(tokens, experts, top_k);
  const double parameter = spec.parameters.empty() ? 0 : spec.parameters[0];
  std::vector<double> weights;
  if (spec.name == "powerlaw") weights = powerlaw(parameter, tokens, experts, seed);
  if (spec.name == "lognormal") weights = exponentials(normals(experts, seed), parameter);
  if (spec.name == "dirichlet") weights = dirichlet_of_factor(parameter, experts, seed);
  if (spec.name == "maxmean") weights = lognormal_of_max_over_mean(parameter, tokens, experts, top_k, seed);
  if (weights.empty()) return {};
  return apportion(weights, total, tokens);
}

}  // namespace moetune
