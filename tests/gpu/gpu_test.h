// What tests on a GPU share: problems with settled seeds, and the backend of the first device.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "backend/cuda/cuda_backend.h"
#include "workload/problem.h"

namespace moetune {

struct GpuCase {
  std::string name;
  int64_t experts, top_k, n, k, tokens;
  std::string routing;
  int64_t ep = 1;
};
inline void PrintTo(const GpuCase& one, std::ostream* out) { *out << one.name; }

inline Problem problem_of(const GpuCase& c, Dtype dtype = Dtype::bf16, Fusion fusion = {}, Op op = Op::fwd) {
  Cell cell;
  cell.shape.layer = {.model = "custom",
                      .projection = op == Op::dx && is_gated(fusion) ? Projection::down : Projection::up,
                      .experts = c.experts,
                      .top_k = c.top_k,
                      .n = c.n,
                      .k = c.k,
                      .format = find_format(name(dtype)),
                      .ep = c.ep};
  cell.shape.op = op;
  cell.shape.fusion = fusion;
  cell.tokens = c.tokens;
  cell.routing = parse_routing(c.routing);
  cell.seed = 7;
  return make_problem(cell);
}

/// fp8, forward.
inline Problem fp8_problem_of(const GpuCase& c, ScaleKind scales, Fusion fusion = {}, bool fast_sums = false,
                              Dtype result = Dtype::bf16) {
  Problem problem = problem_of(c, Dtype::bf16, fusion);
  problem.shape.layer.format = find_format("fp8", scales, result, fast_sums);
  require_valid(problem.shape);
  return problem;
}

/// Of the format of that word.
inline Problem problem_in(const GpuCase& c, std::string_view format, Fusion fusion = {}) {
  Problem problem = problem_of(c, Dtype::bf16, fusion);
  problem.shape.layer.format = format_named(format);
  require_valid(problem.shape);
  return problem;
}

/// Skips without a device.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: " << cuda_unavailable_reason();
  }
  static Backend& backend() {
    static const std::unique_ptr<Backend> one = make_cuda_backend(0, {});
    return *one;
  }
};

}  // namespace moetune
