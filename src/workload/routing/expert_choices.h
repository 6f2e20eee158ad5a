// Experts chosen token by token. Loads that are drawn for all tokens at once: loads.h.
#pragma once
#include <cstdint>
#include <vector>

#include "workload/routing/routing.h"

namespace moetune {

/// Chosen experts [tokens * top_k], none twice in a token, for the kinds uniform, zipf, hot and grouped.
/// Errors (Exit::request): a pool or a number of groups that these sizes do not allow.
std::vector<int32_t> draw_expert_choices(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k,
                                         uint64_t seed);

}  // namespace moetune
