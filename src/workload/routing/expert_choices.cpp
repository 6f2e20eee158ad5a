// Samplers without replacement, one token at a time.
#include "workload/routing/loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

constexpr uint64_t kOrderStream = 1;
constexpr uint64_t kChoiceStream = 2;
constexpr uint64_t kShareStream = 3;

using Keys = std::vector<std::pair<double, int32_t>>;  // smaller comes first; equal keys by expert

std::vector<int32_t> counted(int64_t experts) {
  std::vector<int32_t> ids(static_cast<size_t>(experts));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Moves `count` random ids to the front (Fisher and Yates); with all of them the order is random.
void shuffle_front(std::span<int32_t> ids, size_t count, Random& random) {
  for (size_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + random.below(ids.size() - i)]);
}

std::vector<int32_t> random_order(int64_t experts, uint64_t seed) {
  std::vector<int32_t> order = counted(experts);
  Random random(seed, kOrderStream);
  shuffle_front(order, order.size(), random);
  return order;
}

void append_smallest(Keys& keys, int64_t count, std::vector<int32_t>& ids) {
  std::partial_sort(keys.begin(), keys.begin() + count, keys.end());
  for (int64_t i = 0; i < count; ++i) ids.push_back(keys[static_cast<size_t>(i)].second);
}

std::vector<int32_t> uniform(int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  Random random(seed, kChoiceStream);
  std::vector<int32_t> order = counted(experts);
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(tokens * top_k));
  for (int64_t token = 0; token < tokens; ++token) {
    shuffle_front(order, static_cast<size_t>(top_k), random);
    ids.insert(ids.end(), order.begin(), order.begin() + top_k);
  }
  return ids;
}

// Popularity rank^-a. The experts with the smallest exponential variate / weight are distributed as those that Gumbel
// top-k picks (Efraimidis and Spirakis, 2006), and cost half the logarithms.
std::vector<int32_t> zipf(double a, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  const std::vector<int32_t> order = random_order(experts, seed);
  std::vector<double> inverse_weights;
  for (int64_t rank = 1; rank <= experts; ++rank) inverse_weights.push_back(portable_pow(static_cast<double>(rank), a));
  Random random(seed, kChoiceStream);
  Keys keys(order.size());
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = {random.exponential() * inverse_weights[i], order[i]};
    append_smallest(keys, top_k, ids);
  }
  return ids;
}

// A fraction of all choices comes from a pool. For each token that is the fraction of top_k, rounded down or up so that
// the sum over tokens is right to one choice (systematic sampling), as far as the pool and the other experts suffice.
std::vector<int32_t> hot(double pool_size, double share, int64_t tokens, int64_t experts, int64_t top_k,
                         uint64_t seed) {
  const int64_t pool = static_cast<int64_t>(pool_size);
  if (pool >= experts)
    throw request_error(fmt::format("routing hot: a pool of {} is not smaller than the {} experts", pool, experts));
  std::vector<int32_t> order = random_order(experts, seed);
  const std::span<int32_t> inside(order.data(), static_cast<size_t>(pool));
  const std::span<int32_t> outside(order.data() + pool, static_cast<size_t>(experts - pool));
  const int64_t fewest = std::max<int64_t>(0, top_k - (experts - pool)), most = std::min(pool, top_k);
  const double a_token =
      std::clamp(share * static_cast<double>(top_k), static_cast<double>(fewest), static_cast<double>(most));
  const double offset = Random(seed, kShareStream).uniform();
  const auto up_to = [&](int64_t token) { return static_cast<int64_t>(static_cast<double>(token) * a_token + offset); };
  Random random(seed, kChoiceStream);
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t from_pool = std::clamp(up_to(token + 1) - up_to(token), fewest, most);
    shuffle_front(inside, static_cast<size_t>(from_pool), random);
    shuffle_front(outside, static_cast<size_t>(top_k - from_pool), random);
    ids.insert(ids.end(), inside.begin(), inside.begin() + from_pool);
    ids.insert(ids.end(), outside.begin(), outside.begin() + (top_k - from_pool));
  }
  return ids;
}

// DeepSeek-V3's group-limited choice on random scores: the groups with the largest sums of their two best scores, then
// the best experts in them (arXiv 2412.19437, section 2.1.2). Scores are negated: small is good.
std::vector<int32_t> grouped(double group_count, double chosen, int64_t tokens, int64_t experts, int64_t top_k,
                             uint64_t seed) {
  const int64_t groups = static_cast<int64_t>(group_count), kept = static_cast<int64_t>(chosen);
  if (experts % groups != 0)
    throw request_error(fmt::format("routing grouped: {} groups do not divide {} experts", groups, experts));
  const int64_t size = experts / groups;
  if (kept > groups || kept * size < top_k)
    throw request_error(
        fmt::format("routing grouped: {} of {} groups of {} experts cannot give top_k {}", kept, groups, size, top_k));
  Random random(seed, kChoiceStream);
  std::vector<double> scores(static_cast<size_t>(experts));
  Keys group_keys(static_cast<size_t>(groups)), keys;
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < tokens; ++token) {
    for (double& score : scores) score = -random.uniform();
    for (int64_t group = 0; group < groups; ++group) {
      double best = 0, second = 0;
      for (int64_t e = group * size; e < (group + 1) * size; ++e) {
        const double score = scores[static_cast<size_t>(e)];
        if (score < best)
          second = std::exchange(best, score);
        else if (score < second)
          second = score;
      }
      group_keys[static_cast<size_t>(group)] = {best + second, static_cast<int32_t>(group)};
    }
    std::partial_sort(group_keys.begin(), group_keys.begin() + kept, group_keys.end());
    keys.clear();
    for (int64_t g = 0; g < kept; ++g)
      for (int64_t e = group_keys[static_cast<size_t>(g)].second * size, end = e + size; e < end; ++e)
        keys.emplace_back(scores[static_cast<size_t>(e)], static_cast<int32_t>(e));
    append_smallest(keys, top_k, ids);
  }
  return ids;
}

}  // namespace

std::vector<int32_t> draw_expert_choices(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k,
                                         uint64_t seed) {
  const std::vector<double>& parameters = spec.parameters;
  if (spec.name == "zipf") return zipf(parameters.at(0), tokens, experts, top_k, seed);
  if (spec.name == "hot") return hot(parameters.at(0), parameters.at(1), tokens, experts, top_k, seed);
  if (spec.name == "grouped") return grouped(parameters.at(0), parameters.at(1), tokens, experts, top_k, seed);
  return uniform(tokens, experts, top_k, seed);
}

}  // namespace moetune
