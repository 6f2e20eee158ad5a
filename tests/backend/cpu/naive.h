// Small problems on plain vectors and the obvious triple loop: what everything in this room is held against.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/matrices.h"
#include "built_in.h"
#include "variant/cpu/cpu.h"
#include "workload/problem.h"

namespace moetune::naive {

/// Elements of a dtype in memory of exactly their size, so that AddressSanitizer sees a step beyond.
struct Matrix {
  Dtype dtype = Dtype::fp32;
  std::vector<std::byte> bytes;

  Matrix(Dtype d, int64_t elements) : dtype(d), bytes(static_cast<size_t>(elements * size_bytes(d))) {}
  int64_t size() const { return static_cast<int64_t>(bytes.size()) / size_bytes(dtype); }
  void set(int64_t i, float value) {
    const uint16_t half = dtype == Dtype::bf16 ? to_bf16(value) : to_fp16(value);
    const auto element = static_cast<size_t>(size_bytes(dtype));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * element,
                dtype == Dtype::fp32 ? static_cast<void*>(&value) : const_cast<uint16_t*>(&half), element);
  }
  float get(int64_t i) const {
    float value = 0;
    uint16_t half = 0;
    if (dtype == Dtype::fp32) return std::memcpy(&value, bytes.data() + i * 4, 4), value;
    std::memcpy(&half, bytes.data() + i * 2, 2);
    return dtype == Dtype::bf16 ? from_bf16(half) : from_fp16(half);
  }
};

struct Setting {
  Dtype dtype = Dtype::fp32;
  Fusion fusion = {};
  int64_t n = 32;
  int64_t k = 32;
  int64_t ep = 1;
  uint64_t seed = 5;
  Op op = Op::fwd;
};

/// tokens and top_k as the rows need them: the expert with most rows bounds the tokens from below.
inline Problem problem_of_rows(const std::vector<int32_t>& m_sizes, const Setting& s, int64_t top_k) {
  const int64_t rows = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  Problem problem;
  problem.shape.layer = {.model = "custom",
                         .experts = static_cast<int64_t>(m_sizes.size()),
                         .top_k = top_k,
                         .n = s.n,
                         .k = s.k,
                         .dtype = s.dtype};
  problem.shape.op = s.op;
  problem.shape.fusion = s.fusion;
  problem.routing = routing_from_rows(m_sizes, rows / top_k, top_k);
  problem.seed = s.seed;
  return problem;
}

inline Problem problem_of(const std::string& routing, int64_t tokens, int64_t experts, int64_t top_k,
                          const Setting& s) {
  Cell cell;
  cell.shape.layer = {
      .model = "custom", .experts = experts, .top_k = top_k, .n = s.n, .k = s.k, .dtype = s.dtype, .ep = s.ep};
  cell.shape.op = s.op;
  cell.shape.fusion = s.fusion;
  cell.tokens = tokens;
  cell.routing = parse_routing(routing);
  cell.seed = s.seed;
  return make_problem(cell);
}

inline int64_t slots(const Problem& p) { return p.routing.tokens * p.routing.top_k; }
inline int64_t y_rows(const Problem& p) { return p.shape.fusion.permute_y ? slots(p) : p.rows(); }

/// Operands of one forward launch.
struct Operands {
  Matrix x, w, y;
  std::vector<float> weights;

  Operands(const Problem& p, Values values)
      : x(p.shape.layer.dtype, (p.shape.fusion.permute_x ? p.routing.tokens : p.rows()) * p.shape.layer.k),
        w(p.shape.layer.dtype, p.shape.layer.local_experts() * p.shape.layer.n * p.shape.layer.k),
        y(p.shape.layer.dtype, y_rows(p) * p.shape.layer.n),
        weights(static_cast<size_t>(slots(p))) {
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, operand_value(values, p.seed, kStreamX, static_cast<uint64_t>(i)));
    for (int64_t i = 0; i < w.size(); ++i) w.set(i, operand_value(values, p.seed, kStreamW, static_cast<uint64_t>(i)));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = operand_value(values, p.seed, kStreamWeights, i);
    for (int64_t i = 0; i < y.size(); ++i) y.set(i, std::nanf(""));
  }

  Matrices matrices() {
    return {.a = x.bytes.data(), .b = w.bytes.data(), .d = y.bytes.data(), .topk_weights = weights.data()};
  }
};

/// The sum of one element in double, by row of expert order.
inline double sum_at(const Problem& p, const Operands& o, int64_t expert, int64_t row, int64_t column) {
  const Layer& layer = p.shape.layer;
  const int64_t x_row = p.shape.fusion.permute_x ? p.routing.gather_indices[row] / layer.top_k : row;
  double sum = 0;
  for (int64_t k = 0; k < layer.k; ++k)
    sum += static_cast<double>(o.x.get(x_row * layer.k + k)) * o.w.get((expert * layer.n + column) * layer.k + k);
  return sum;
}

/// Calls f(expert, row in expert order, row of Y) for every row.
template <class F>
void for_rows(const Problem& p, F&& f) {
  int64_t row = 0;
  for (size_t expert = 0; expert < p.routing.m_sizes.size(); ++expert)
    for (int32_t i = 0; i < p.routing.m_sizes[expert]; ++i, ++row)
      f(static_cast<int64_t>(expert), row, p.shape.fusion.permute_y ? int64_t{p.routing.gather_indices[row]} : row);
}

/// Y as it must be: NaN where this rank writes nothing.
inline Matrix multiply(const Problem& p, const Operands& o) {
  const Layer& layer = p.shape.layer;
  Matrix y(layer.dtype, y_rows(p) * layer.n);
  for (int64_t i = 0; i < y.size(); ++i) y.set(i, std::nanf(""));
  for_rows(p, [&](int64_t expert, int64_t row, int64_t target) {
    for (int64_t column = 0; column < layer.n; ++column) {
      float value = round_to(layer.dtype, static_cast<float>(sum_at(p, o, expert, row, column)));
      if (p.shape.fusion.topk_weights)
        value = round_to(layer.dtype, value * round_to(layer.dtype, o.weights[p.routing.gather_indices[row]]));
      y.set(target * layer.n + column, value);
    }
  });
  return y;
}

inline Candidate candidate(int block_m, int block_n, int block_k, int threads) {
  return candidate_of("cpu", {block_m, block_n, block_k, threads});
}

/// The first element that differs in its bits, in words; "" where all are the same.
inline std::string difference(const Matrix& got, const Matrix& wanted, int64_t n) {
  const auto element = static_cast<size_t>(size_bytes(got.dtype));
  for (size_t i = 0; i < wanted.bytes.size() / element; ++i)
    if (std::memcmp(&got.bytes[i * element], &wanted.bytes[i * element], element) != 0)
      return "row " + std::to_string(static_cast<int64_t>(i) / n) + ", column " +
             std::to_string(static_cast<int64_t>(i) % n) + ": got " + std::to_string(got.get(static_cast<int64_t>(i))) +
             ", wanted " + std::to_string(wanted.get(static_cast<int64_t>(i)));
  return "";
}

inline DeviceInfo device(int processors) {
  DeviceInfo info;
  info.kind = DeviceKind::cpu;
  info.processors = processors;
  info.cache_bytes = int64_t{32} << 20;
  return info;
}

}  // namespace moetune::naive
