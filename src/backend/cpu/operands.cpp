// Planning, allocating and filling of operand sets.
#include "backend/cpu/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "base/text/units.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"
#include "workload/product/values.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

constexpr int kColdFactor = 3;
constexpr int kMaxSets = 64;
constexpr double kUsableMemory = 0.8;
constexpr int64_t kFloat = sizeof(float), kDouble = sizeof(double);
constexpr int64_t kPiece = int64_t{1} << 16;

/// Rows of an input in memory, one run after another: those of each expert that has rows, or all of a ragged one.
struct Run {
  int64_t first = 0;
  int64_t rows = 0;
};
std::vector<Run> used_runs(const Product& product, const Operand& operand) {
  if (is_ragged(product, operand) || operand.matrix == LayerMatrix::bias) return {{0, operand.rows}};
  std::vector<Run> runs;
  for (int64_t expert = 0; expert < experts(product); ++expert)
    if (product.m_sizes[static_cast<size_t>(expert)] > 0)
      runs.push_back({memory_row(product, operand, expert, 0), extent(product, expert, operand.row_axis)});
  return runs;
}

/// f(first, count) for pieces of [begin, begin + count), on all threads: so that each thread touches its pages first.
template <class F>
void for_pieces(ThreadPool& pool, int64_t begin, int64_t count, F&& f) {
  pool.for_each((count + kPiece - 1) / kPiece,
                [&](int, int64_t i) { f(begin + i * kPiece, std::min(kPiece, count - i * kPiece)); });
}

/// `count` elements of an operand from `first` on, rounded to its dtype. `target` is the operand's first.
void fill(const Product& product, const Operand& operand, Values values, int64_t first, int64_t count,
          std::byte* target) {
  std::vector<float> floats(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    floats[static_cast<size_t>(i)] = stored_value(product, operand, values, first + i);
  from_floats(operand.type.dtype, floats.data(), count, target + first * bits(operand.type.dtype) / 8);
}

/// Copied from `source`, where there is one.
Buffer make_input(const Product& product, const Operand& operand, Values values, const Buffer* source,
                  ThreadPool& pool) {
  Buffer input(operand.rows * row_bytes(operand));
  const auto make = [&](int64_t first, int64_t count) {
    const int64_t each = bits(operand.type.dtype), at = first * each / 8;
    if (source)
      std::memcpy(input.data() + at, source->data() + at, static_cast<size_t>(count * each / 8));
    else
      fill(product, operand, values, first, count, input.data());
  };
  for (const Run& run : used_runs(product, operand))
    for_pieces(pool, run.first * operand.columns, run.rows * operand.columns, make);
  return input;
}

Buffer make_scales(const Product& product, const Operand& operand, Values values) {
  const int64_t count = scale_count(product, operand);
  Buffer scales(count * static_cast<int64_t>(sizeof(float)));
  for (int64_t i = 0; i < count; ++i) scales.as<float>()[i] = scale_value(product, operand, values, i);
  return scales;
}

Buffer make_zeros(const Product& product, const Operand& operand, Values values) {
  if (!operand.type.zero_points) return {};
  std::vector<float> zeros(static_cast<size_t>(scale_count(product, operand)));
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = zero_value(product, operand, values, static_cast<int64_t>(i));
  Buffer packed(std::ssize(zeros) / 2);
  from_floats(operand.type.dtype, zeros.data(), std::ssize(zeros), packed.data());
  return packed;
}

/// Bytes of an input that have pages behind them.
int64_t used_bytes(const Product& product, const Operand& operand) {
  int64_t rows = 0;
  for (const Run& run : used_runs(product, operand)) rows += run.rows;
  return rows * row_bytes(operand) + scale_count(product, operand) * static_cast<int64_t>(sizeof(float));
}

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

std::vector<std::pair<Operand, Output OperandSet::*>> results_of(const Product& product) {
  std::vector<std::pair<Operand, Output OperandSet::*>> results = {{product.d, &OperandSet::d}};
  if (quantises(product)) results.emplace_back(scales_of_result(product), &OperandSet::d_scales);
  if (const Operand* second = second_result(product)) results.emplace_back(*second, &OperandSet::second);
  if (const auto& gradient = product.weight_gradient) results.emplace_back(gradient->dweights, &OperandSet::dweights);
  return results;
}

OperandSet make_set(const Product& product, Values values, ThreadPool& pool, const OperandSet* source) {
  const auto input = [&](const Operand& operand, Buffer OperandSet::*which) {
    return make_input(product, operand, values, source ? &(source->*which) : nullptr, pool);
  };
  OperandSet set{.a = input(product.a, &OperandSet::a),
                 .b = input(product.b, &OperandSet::b),
                 .values = values,
                 .a_scales = make_scales(product, product.a, values),
                 .b_scales = make_scales(product, product.b, values),
                 .b_zeros = make_zeros(product, product.b, values)};
  if (product.bias) set.bias = input(*product.bias, &OperandSet::bias);
  if (product.gate_gradient)
    set.h = input(product.gate_gradient->h, &OperandSet::h);
  else if (product.weight_gradient)
    set.x = input(product.weight_gradient->x, &OperandSet::x);
  for (const auto& [result, output] : results_of(product))
    set.*output = Output(result.rows, result.columns, result.type.dtype);
  reset_output(product, set, pool);
  return set;
}

void reset_output(const Product& product, const OperandSet& set, ThreadPool& pool) {
  for (const auto& [result, output] : results_of(product)) (set.*output).reset(pool);
  if (product.accumulates)
    for_pieces(pool, 0, product.d.rows * product.d.columns,
               [&](int64_t first, int64_t count) { fill(product, product.d, set.values, first, count, set.d.data()); });
}

MemoryPlan plan_memory(const Product& product, const DeviceInfo& device, int64_t available) {
  MemoryPlan plan;
  plan.set_bytes = used_bytes(product, product.a) + used_bytes(product, product.b);
  for (const auto& [result, output] : results_of(product)) {
    plan.set_bytes += result.rows * row_bytes(result) + 2 * Output::kGuardBytes;
    plan.reference_bytes += result_rows(product, result) * (row_bytes(result) + kFloat * result.columns);
  }
  if (sums_slots(product)) plan.reference_bytes += kDouble * product.d.rows * product.d.columns;  // while they are made
  if (product.bias) plan.set_bytes += used_bytes(product, *product.bias);
  if (takes_another_pass(product) || is_finished(product))
    plan.partial_bytes = kFloat * routed_rows(product) * product.n;
  if (const auto& gate = product.gate_gradient) plan.set_bytes += used_bytes(product, gate->h);
  if (const auto& gradient = product.weight_gradient) plan.set_bytes += used_bytes(product, gradient->x);
  const double touched = std::max(1.0, bytes(product));
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

std::vector<OperandSet> make_sets(const Product& product, int count, ThreadPool& pool) {
  std::vector<OperandSet> sets;
  while (static_cast<int>(sets.size()) < count)
    sets.push_back(make_set(product, Values::random, pool, sets.empty() ? nullptr : &sets[0]));
  return sets;
}

std::vector<float> make_topk_weights(const Product& product, Values values) {
  if (product.weighting == Weighting::none) return {};
  std::vector<float> weights(static_cast<size_t>(product.slots));
  for (size_t slot = 0; slot < weights.size(); ++slot)
    weights[slot] = topk_weight(product, values, static_cast<int64_t>(slot));
  return weights;
}

Matrices matrices_of(const OperandSet& set, const std::vector<float>& topk_weights) {
  return {.a = set.a.data(),
          .b = set.b.data(),
          .d = set.d.data(),
          .d_scales = reinterpret_cast<float*>(set.d_scales.data()),
          .topk_weights = topk_weights.data(),
          .a_scales = set.a_scales.as<float>(),
          .b_scales = set.b_scales.as<float>(),
          .b_zeros = set.b_zeros.data(),
          .x = set.x.data(),
          .h = set.h.data(),
          .second = set.second.data(),
          .bias = set.bias.data(),
          .dweights = reinterpret_cast<float*>(set.dweights.data())};
}

}  // namespace moetune
