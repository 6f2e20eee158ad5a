// Planning, allocating and filling of operand sets.
#include "backend/cpu/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "base/units.h"

namespace moetune {
namespace {

constexpr int kColdFactor = 3;
constexpr int kMaxSets = 64;
constexpr double kUsableMemory = 0.8;
constexpr int64_t kPiece = int64_t{1} << 16;

/// Elements [first, first + count) of one stream, rounded to the dtype.
void fill(const Problem& problem, Values values, int stream, int64_t first, int64_t count, const Buffer& target,
          ThreadPool& pool) {
  const Dtype dtype = problem.shape.layer.dtype;
  pool.for_each((count + kPiece - 1) / kPiece, [&](int, int64_t piece) {
    const int64_t begin = first + piece * kPiece, end = std::min(first + count, begin + kPiece);
    for (int64_t i = begin; i < end; ++i) {
      const float value = operand_value(values, problem.seed, stream, static_cast<uint64_t>(i));
      if (dtype == Dtype::fp32) target.as<float>()[i] = value;
      if (dtype == Dtype::bf16) target.as<uint16_t>()[i] = to_bf16(value);
      if (dtype == Dtype::fp16) target.as<uint16_t>()[i] = to_fp16(value);
    }
  });
}

/// Calls f(expert) for those that have rows: nothing else of W is ever read.
template <class F>
void for_active(const Problem& problem, F&& f) {
  for (size_t expert = 0; expert < problem.routing.m_sizes.size(); ++expert)
    if (problem.routing.m_sizes[expert] > 0) f(static_cast<int64_t>(expert));
}

void copy(const std::byte* source, std::byte* target, int64_t bytes, ThreadPool& pool) {
  pool.for_each((bytes + kPiece - 1) / kPiece, [&](int, int64_t piece) {
    const int64_t begin = piece * kPiece;
    std::memcpy(target + begin, source + begin, static_cast<size_t>(std::min(kPiece, bytes - begin)));
  });
}

OperandSet empty_set(const Problem& problem) {
  const Layer& layer = problem.shape.layer;
  const int64_t element = size_bytes(layer.dtype);
  return {.x = Buffer(problem.x_rows() * layer.k * element),
          .w = Buffer(layer.local_experts() * layer.n * layer.k * element),
          .y = Output(problem.y_rows(), layer.n, layer.dtype)};
}

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

OperandSet make_set(const Problem& problem, Values values, ThreadPool& pool) {
  const Layer& layer = problem.shape.layer;
  OperandSet set = empty_set(problem);
  fill(problem, values, kStreamX, 0, problem.x_rows() * layer.k, set.x, pool);
  const int64_t matrix = layer.n * layer.k;
  for_active(problem, [&](int64_t e) { fill(problem, values, kStreamW, e * matrix, matrix, set.w, pool); });
  set.y.reset(pool);
  return set;
}

MemoryPlan plan_memory(const Problem& problem, const DeviceInfo& device, int64_t available) {
  const Layer& layer = problem.shape.layer;
  const int64_t element = size_bytes(layer.dtype);
  MemoryPlan plan;
  plan.set_bytes =
      (problem.x_rows() * layer.k + problem.active_experts() * layer.n * layer.k + problem.y_rows() * layer.n) *
          element +
      2 * Output::kGuardBytes;
  plan.reference_bytes = problem.rows() * layer.n * (element + 4);
  const double touched = std::max(1.0, problem.bytes());
  const double cold = static_cast<double>(kColdFactor * device.cache_bytes);
  const int fewest = touched >= cold ? 1 : 2;
  plan.sets = static_cast<int>(std::clamp(std::ceil(cold / touched), 2.0, static_cast<double>(kMaxSets)));
  const auto usable = static_cast<int64_t>(kUsableMemory * static_cast<double>(available));
  while (plan.sets > fewest && plan.total_bytes() > usable) --plan.sets;
  if (plan.total_bytes() > usable)
    throw OutOfMemory(fmt::format("the operands, outputs and references take {} of memory; {} of {} free may be used",
                                  bytes_text(plan.total_bytes()), bytes_text(usable), bytes_text(available)),
                      plan.total_bytes());
  return plan;
}

std::vector<OperandSet> make_sets(const Problem& problem, int count, ThreadPool& pool) {
  const Layer& layer = problem.shape.layer;
  std::vector<OperandSet> sets;
  sets.push_back(make_set(problem, Values::random, pool));
  const int64_t matrix = layer.n * layer.k * size_bytes(layer.dtype);
  while (static_cast<int>(sets.size()) < count) {
    OperandSet set = empty_set(problem);
    copy(sets[0].x.data(), set.x.data(), set.x.bytes(), pool);
    for_active(problem,
               [&](int64_t e) { copy(sets[0].w.data() + e * matrix, set.w.data() + e * matrix, matrix, pool); });
    set.y.reset(pool);
    sets.push_back(std::move(set));
  }
  return sets;
}

std::vector<float> make_topk_weights(const Problem& problem) {
  if (!problem.shape.fusion.topk_weights) return {};
  std::vector<float> weights(static_cast<size_t>(problem.routing.tokens * problem.routing.top_k));
  for (size_t slot = 0; slot < weights.size(); ++slot)
    weights[slot] = operand_value(Values::random, problem.seed, kStreamWeights, slot);
  return weights;
}

Args make_args(const Problem& problem, const OperandSet& set, const std::vector<float>& topk_weights) {
  const Layer& layer = problem.shape.layer;
  return {.x = set.x.data(),
          .w = set.w.data(),
          .y = set.y.y(),
          .m_sizes = problem.routing.m_sizes.data(),
          .gather_indices = problem.routing.gather_indices.data(),
          .topk_weights = topk_weights.data(),
          .n = layer.n,
          .k = layer.k,
          .experts = static_cast<int>(layer.local_experts()),
          .top_k = static_cast<int>(layer.top_k)};
}

}  // namespace moetune
