// Realised routings: from rows or chosen experts, their shards, figures and JSON. Not how rows are drawn.
#include "workload/routing/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "workload/shape.h"

namespace moetune {
namespace {

// Within an expert slots grow and tokens differ; no slot is used twice.
void require_consistent(const Routing& routing, const JsonAt& json) {
  const auto total = std::accumulate(routing.m_sizes.begin(), routing.m_sizes.end(), int64_t{0});
  if (total != routing.rows())
    json.fail(fmt::format("m_sizes sum to {}, but gather_indices has {} rows", total, routing.rows()));
  std::vector<bool> used(static_cast<size_t>(routing.tokens * routing.top_k));
  auto row = routing.gather_indices.begin();
  for (size_t expert = 0; expert < routing.m_sizes.size(); ++expert) {
    int64_t last_token = -1;
    for (int32_t i = 0; i < routing.m_sizes[expert]; ++i, ++row) {
      const int64_t token = *row / routing.top_k;
      if (token <= last_token) json.fail(fmt::format("rows of expert {} are not in the order of tokens", expert));
      if (used[static_cast<size_t>(*row)]) json.fail(fmt::format("slot {} has two experts", *row));
      used[static_cast<size_t>(*row)] = true;
      last_token = token;
    }
  }
}

}  // namespace

void require_sizes(int64_t tokens, int64_t experts, int64_t top_k) {
  if (tokens < 1) throw request_error(fmt::format("tokens is {}, it must be at least 1", tokens));
  if (experts < 1 || experts > kMaxExperts)
    throw request_error(fmt::format("experts is {}, outside 1 to {}", experts, kMaxExperts));
  if (top_k < 1) throw request_error(fmt::format("top_k is {}, it must be at least 1", top_k));
  if (top_k > experts)
    throw request_error(fmt::format("top_k {} is more than the {} experts", top_k, experts),
                        "a token picks no expert twice");
  if (tokens > kMaxRows / top_k)
    throw request_error(fmt::format("{} tokens with top_k {} are more than {} rows", tokens, top_k, kMaxRows));
}

RoutingFigures figures(const Routing& routing) {
  RoutingFigures result;
  double squares = 0;
  for (const int32_t m : routing.m_sizes) {
    result.rows += m;
    result.active_experts += m > 0;
    result.max_rows = std::max<int64_t>(result.max_rows, m);
    squares += static_cast<double>(m) * m;
  }
  if (result.rows == 0) return result;
  const double experts = static_cast<double>(routing.m_sizes.size());
  const double rows = static_cast<double>(result.rows);
  const double mean = rows / experts;
  result.max_over_mean = static_cast<double>(result.max_rows) / mean;
  result.cv = std::sqrt(std::max(0.0, squares / experts - mean * mean)) / mean;
  result.effective_experts = rows * rows / squares;
  return result;
}

Routing routing_from_rows(const std::vector<int32_t>& m_sizes, int64_t tokens, int64_t top_k) {
  require_sizes(tokens, static_cast<int64_t>(m_sizes.size()), top_k);
  Routing routing{tokens, top_k, m_sizes, {}};
  const auto total = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  if (total > tokens * top_k)
    throw request_error(
        fmt::format("rows sum to {}, but {} tokens with top_k {} make {}", total, tokens, top_k, tokens * top_k));
  routing.gather_indices.reserve(static_cast<size_t>(total));
  // Row i of all goes to token i % tokens, slot i / tokens. An expert's rows may wrap: then its first tokens come
  // first.
  //   tokens 0..5, expert takes rows 4..8:  | . . . . x x |  slot 0
  //                                         | x x x . . . |  slot 1
  const auto deal = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      routing.gather_indices.push_back(static_cast<int32_t>(i % tokens * top_k + i / tokens));
  };
  int64_t first = 0;
  for (size_t expert = 0; expert < m_sizes.size(); ++expert) {
    const int64_t m = m_sizes[expert];
    if (m < 0 || m > tokens)
      throw request_error(fmt::format("expert {} has {} rows, outside 0 to {} tokens", expert, m, tokens));
    const int64_t wrap = std::min(first + m, (first / tokens + 1) * tokens);
    deal(wrap, first + m);
    deal(first, wrap);
    first += m;
  }
  return routing;
}

Routing routing_from_ids(const std::vector<int32_t>& topk_ids, int64_t tokens, int64_t top_k, int64_t experts) {
  require_sizes(tokens, experts, top_k);
  if (static_cast<int64_t>(topk_ids.size()) != tokens * top_k)
    throw request_error(fmt::format("{} chosen experts, but {} tokens with top_k {} make {}", topk_ids.size(), tokens,
                                    top_k, tokens * top_k));
  Routing routing{tokens, top_k, std::vector<int32_t>(static_cast<size_t>(experts)), {}};
  std::vector<int64_t> last_token(static_cast<size_t>(experts), -1);
  for (size_t i = 0; i < topk_ids.size(); ++i) {
    const int64_t token = static_cast<int64_t>(i) / top_k;
    const int32_t id = topk_ids[i];
    if (id < 0 || id >= experts)
      throw request_error(fmt::format("token {} has expert {}, outside 0 to {}", token, id, experts - 1));
    if (last_token[static_cast<size_t>(id)] == token)
      throw request_error(fmt::format("token {} has expert {} twice", token, id));
    last_token[static_cast<size_t>(id)] = token;
    ++routing.m_sizes[static_cast<size_t>(id)];
  }
  std::vector<size_t> next(routing.m_sizes.size());
  std::exclusive_scan(routing.m_sizes.begin(), routing.m_sizes.end(), next.begin(), size_t{0});
  routing.gather_indices.resize(topk_ids.size());
  for (size_t i = 0; i < topk_ids.size(); ++i)
    routing.gather_indices[next[static_cast<size_t>(topk_ids[i])]++] = static_cast<int32_t>(i);
  return routing;
}

Routing first_experts(const Routing& routing, int64_t experts) {
  const auto end = routing.m_sizes.begin() + experts;
  const auto rows = std::accumulate(routing.m_sizes.begin(), end, int64_t{0});
  return {routing.tokens,
          routing.top_k,
          {routing.m_sizes.begin(), end},
          {routing.gather_indices.begin(), routing.gather_indices.begin() + rows}};
}

Json to_json(const RoutingFigures& figures) {
  return {{"rows", figures.rows},         {"active_experts", figures.active_experts},
          {"max_rows", figures.max_rows}, {"max_over_mean", rounded(figures.max_over_mean, 5)},
          {"cv", rounded(figures.cv, 5)}, {"effective_experts", rounded(figures.effective_experts, 5)}};
}

Json to_json(const Routing& routing) {
  return {{"tokens", routing.tokens},
          {"top_k", routing.top_k},
          {"m_sizes", routing.m_sizes},
          {"gather_indices", routing.gather_indices}};
}

Routing routing_from_json(const JsonAt& json) {
  Routing routing;
  routing.top_k = json["top_k"].integer(1, kMaxExperts);
  routing.tokens = json["tokens"].integer(1, kMaxRows / routing.top_k);
  routing.m_sizes = integers(json["m_sizes"], 0, routing.tokens);
  routing.gather_indices = integers(json["gather_indices"], 0, routing.tokens * routing.top_k - 1);
  require_consistent(routing, json);
  return routing;
}

}  // namespace moetune
