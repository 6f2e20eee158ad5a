// What holds for every whole-model routing.
#pragma once
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "workload/routing/routing.h"

namespace moetune {

/// Rows add up, every slot has one expert, no token has an expert twice, rows of an expert are in the order of slots.
inline void check_routing(const Routing& routing, int64_t tokens, int64_t experts, int64_t top_k) {
  ASSERT_EQ(routing.tokens, tokens);
  ASSERT_EQ(routing.top_k, top_k);
  ASSERT_EQ(static_cast<int64_t>(routing.m_sizes.size()), experts);
  ASSERT_EQ(std::accumulate(routing.m_sizes.begin(), routing.m_sizes.end(), int64_t{0}), tokens * top_k);
  ASSERT_EQ(routing.rows(), tokens * top_k);
  std::vector<bool> used(static_cast<size_t>(routing.rows()), false);
  auto row = routing.gather_indices.begin();
  for (const int32_t m : routing.m_sizes) {
    ASSERT_GE(m, 0);
    int64_t last_token = -1;
    for (int32_t i = 0; i < m; ++i, ++row) {
      ASSERT_GE(*row, 0);
      ASSERT_LT(*row, tokens * top_k);
      ASSERT_FALSE(used[static_cast<size_t>(*row)]);
      used[static_cast<size_t>(*row)] = true;
      ASSERT_GT(*row / top_k, last_token);
      last_token = *row / top_k;
    }
  }
}

}  // namespace moetune
