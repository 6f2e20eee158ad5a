// What routings are drawn from: loads of all tokens at once, whose tokens routing_from_rows chooses, or experts chosen
// token by token.
#pragma once
#include <cstdint>
#include <vector>

#include "workload/routing/routing.h"

namespace moetune {

/// Divides `total` into whole numbers in proportion to `weights` (>= 0), none over `cap`: what is above the cap is
/// spread over the others, remainders go to the largest fraction (Hamilton's method), the first of equals. Equal
/// numbers where no weight is left. Needs total <= cap * weights.size().
std::vector<int32_t> apportion(const std::vector<double>& weights, int64_t total, int64_t cap);

/// Rows per expert for the kinds that draw loads (balanced, single, powerlaw, lognormal, dirichlet, maxmean):
/// [experts], summing to tokens * top_k, none over `tokens`. Empty for others.
std::vector<int32_t> draw_loads(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed);

/// Chosen experts [tokens * top_k], none twice in a token, for the kinds uniform, zipf, hot and grouped.
/// Errors (Exit::request): a pool or a number of groups that these sizes do not allow.
std::vector<int32_t> draw_expert_choices(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k,
                                         uint64_t seed);

}  // namespace moetune
