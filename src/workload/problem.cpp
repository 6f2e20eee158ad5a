// Problems: their sizes, JSON and operand values.
#include "workload/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace moetune {

int64_t Problem::active_experts() const {
  return std::count_if(routing.m_sizes.begin(), routing.m_sizes.end(), [](int32_t m) { return m > 0; });
}

std::vector<size_t> by_work(const std::vector<Cell>& cells) {
  const auto work = [&](size_t i) {
    const Layer& layer = cells[i].shape.layer;
    return static_cast<double>(cells[i].tokens) * static_cast<double>(layer.top_k) * static_cast<double>(layer.n) *
           static_cast<double>(layer.k);
  };
  std::vector<size_t> order(cells.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, work);
  return order;
}

Problem make_problem(const Cell& cell) {
  require_valid(cell.shape);
  const Layer& layer = cell.shape.layer;
  return {cell.shape, generate_routing(cell.routing, cell.tokens, layer.experts, layer.top_k, layer.ep, cell.seed),
          cell.seed};
}

Json to_json(const Problem& problem) {
  return {{"shape", to_json(problem.shape)}, {"seed", problem.seed}, {"routing", to_json(problem.routing)}};
}

Problem problem_from_json(const JsonAt& json) {
  Problem problem{shape_from_json(json["shape"]), routing_from_json(json["routing"]), seed_from_json(json["seed"])};
  const Layer& layer = problem.shape.layer;
  const Routing& routing = problem.routing;
  if (routing.top_k != layer.top_k)
    json.fail(fmt::format("the routing has top_k {}, the layer {}", routing.top_k, layer.top_k));
  if (static_cast<int64_t>(routing.m_sizes.size()) != layer.local_experts())
    json.fail(fmt::format("m_sizes has {} experts, the layer {}", routing.m_sizes.size(), layer.local_experts()));
  if (layer.ep == 1 && routing.rows() != routing.tokens * routing.top_k)
    json.fail(fmt::format("m_sizes sum to {}, but {} tokens with top_k {} make {}", routing.rows(), routing.tokens,
                          routing.top_k, routing.tokens * routing.top_k));
  return problem;
}

float operand_value(Values values, uint64_t seed, int stream, uint64_t index) {
  const uint64_t hash = splitmix64(splitmix64(seed * 4 + static_cast<uint64_t>(stream)) + index / 2);
  const uint32_t bits = static_cast<uint32_t>(index % 2 == 0 ? hash : hash >> 32);
  if (stream == kStreamWeights) return static_cast<float>((bits >> 8) + 0.5) * 0x1p-24f;
  if (values == Values::integer) return static_cast<float>(static_cast<int>((bits >> 8) % 9) - 4);
  const int sum = static_cast<int>((bits & 0xff) + ((bits >> 8) & 0xff) + ((bits >> 16) & 0xff) + (bits >> 24));
  const int fine = static_cast<int>((bits * 0x9e3779b1u) >> 24);
  constexpr float kUnitDeviation = 1.32144990e-05f;  // sqrt(3) / 2^17
  return static_cast<float>((sum - 510) * 512 + 2 * fine - 255) * kUnitDeviation;
}

}  // namespace moetune
