// The variant reaches more than half of what this machine's multipliers can do, and beats the plain loop. Each ratio is
// that of two best times of all tries: a disturbed try on either side can't make one.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu_backend.h"
#include "built_in.h"
#include "naive.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define MOETUNE_SKIP_SLOW_BUILD() GTEST_SKIP() << "only optimised builds without sanitizers are fast"
#else
#define MOETUNE_SKIP_SLOW_BUILD() static_cast<void>(0)
#endif

namespace moetune {
namespace {

// What is enough after the fewest tries is enough; a machine that others keep busy is given more.
constexpr int kFewestTries = 8, kTries = 40;

// Of one launch each where that takes a millisecond: the shorter, the likelier that nobody comes in between.
double best_seconds(Backend& backend, const Contender& contender) {
  double best = 1e9;
  for (const Block& block : backend.sample(contender, {.blocks = 20, .block_seconds = 1e-3, .hot = true}))
    best = std::min(best, block.seconds);
  return best;
}

TEST(CpuPerformance, ReachesHalfOfTheFp32Peak) {
  MOETUNE_SKIP_SLOW_BUILD();
  const auto backend = make_cpu_backend({});
  ThreadPool pool(backend->device().processors);
  const Problem p = naive::problem_of("balanced", 512, 2, 1, {.n = 1024, .k = 1024});
  const Candidate c = find_variant("cpu").fallback(p, backend->device());
  backend->load(p);
  double peak = 0, seconds = 1e9, ratio = 0;
  for (int i = 0; i < kFewestTries || (i < kTries && (ratio <= 0.5 || ratio > 1)); ++i) {
    peak = std::max(peak, fma_rate(microkernel(), pool, 0.05).burst);
    seconds = std::min(seconds, best_seconds(*backend, {.baseline = "", .candidate = c}));
    ratio = flops(product_of(p)) / seconds / peak;
  }
  RecordProperty("percent_of_peak", static_cast<int>(100 * ratio));
  EXPECT_GT(ratio, 0.5) << text(c);
  EXPECT_LE(ratio, 1) << "no try saw the peak: " << peak * 1e-9 << " GFLOP/s";
}

TEST(CpuPerformance, BeatsTheLoop) {
  MOETUNE_SKIP_SLOW_BUILD();
  const auto backend = make_cpu_backend({});
  for (const int64_t tokens : {8, 256}) {
    const Problem p = naive::problem_of("balanced", tokens, 8, 2, {.dtype = Dtype::bf16, .n = 512, .k = 1024});
    const Candidate c = find_variant("cpu").fallback(p, backend->device());
    backend->load(p);
    double loop = 1e9, seconds = 1e9, ratio = 0;
    for (int i = 0; i < kFewestTries || (i < kTries && ratio <= 1.05); ++i) {
      loop = std::min(loop, best_seconds(*backend, {.baseline = "loop", .candidate = {}}));
      seconds = std::min(seconds, best_seconds(*backend, {.baseline = "", .candidate = c}));
      ratio = loop / seconds;
    }
    EXPECT_GT(ratio, 1.05) << tokens << " tokens";
  }
}

}  // namespace
}  // namespace moetune
