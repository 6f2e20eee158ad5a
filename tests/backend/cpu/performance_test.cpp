// The variant reaches more than half of what this machine's multipliers can do, and reads W at memory speed for few
// rows. Ratios to ceilings measured at the same time, the best of several tries: a busy machine slows both.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu_backend.h"
#include "naive.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define MOETUNE_SKIP_SLOW_BUILD() GTEST_SKIP() << "only optimised builds without sanitizers are fast"
#else
#define MOETUNE_SKIP_SLOW_BUILD() static_cast<void>(0)
#endif

namespace moetune {
namespace {

constexpr int kTries = 12;

double best_seconds(Backend& backend, const Candidate& c, int blocks) {
  double best = 1e9;
  for (const Block& block : backend.sample({.baseline = "", .candidate = c}, {.blocks = blocks, .block_seconds = 1e-3}))
    best = std::min(best, block.seconds);
  return best;
}

TEST(CpuPerformance, ReachesHalfOfTheFp32Peak) {
  MOETUNE_SKIP_SLOW_BUILD();
  const auto backend = make_cpu_backend({});
  ThreadPool pool(backend->device().processors);
  const Problem p = naive::problem_of("balanced", 2048, 8, 2, {.n = 1024, .k = 2048});
  const Candidate c = cpu_variant().fallback(p, backend->device());
  backend->load(p);
  double ratio = 0;
  for (int i = 0; i < kTries && ratio <= 0.5; ++i) {
    const double peak = fma_rate(microkernel(), pool, 0.05).burst;
    ratio = std::max(ratio, p.flops() / best_seconds(*backend, c, 3) / peak);
  }
  RecordProperty("percent_of_peak", static_cast<int>(100 * ratio));
  EXPECT_GT(ratio, 0.5) << text(c);
}

TEST(CpuPerformance, BeatsTheLoop) {
  MOETUNE_SKIP_SLOW_BUILD();
  const auto backend = make_cpu_backend({});
  for (const int64_t tokens : {8, 1024}) {
    const Problem p = naive::problem_of("balanced", tokens, 8, 2, {.dtype = Dtype::bf16, .n = 512, .k = 1024});
    const Candidate c = cpu_variant().fallback(p, backend->device());
    backend->load(p);
    double ratio = 0;
    for (int i = 0; i < kTries && ratio <= 1.05; ++i) {
      double loop = 1e9;
      for (const Block& block :
           backend->sample({.baseline = "loop", .candidate = {}}, {.blocks = 3, .block_seconds = 1e-3}))
        loop = std::min(loop, block.seconds);
      ratio = std::max(ratio, loop / best_seconds(*backend, c, 3));
    }
    EXPECT_GT(ratio, 1.05) << tokens << " tokens";
  }
}

}  // namespace
}  // namespace moetune
