// Timed multiply-adds.
#include "backend/cpu/machine.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "backend/cpu/grouped_gemm.h"
#include "base/stats.h"

namespace moetune {

Ceilings measure_ceilings(ThreadPool& pool) {
  constexpr double kSeconds = 0.5, kPieceSeconds = 5e-3;
  constexpr int64_t kDepth = 128;
  const std::vector<float> a(kTileRows * kDepth), b(kTileColumns * kDepth);
  int64_t steps = 1000;
  // Seconds in which all threads multiply tiles that stay in the first-level cache.
  const auto multiply = [&] {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(pool.size(), [&](int) {
      float sums[kTileRows * kTileColumns] = {};
      for (int64_t i = 0; i < steps; ++i) best_tile().add(kDepth, a.data(), b.data(), sums, kTileColumns);
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (multiply() < kPieceSeconds) steps *= 2;
  std::vector<double> times;
  for (double spent = 0; spent < kSeconds || times.size() < 3; spent += times.back()) times.push_back(multiply());
  const double work = 2.0 * kTileRows * kTileColumns * kDepth * static_cast<double>(steps) * pool.size();
  const Estimate time = median_estimate(times);
  return {.dense_burst = work / *std::ranges::min_element(times), .noise = half_width(time) / time.value};
}

}  // namespace moetune
