// Timed loops for bandwidth and multiply-adds.
#include "backend/cpu/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/memory.h"
#include "base/stats.h"

namespace moetune {
namespace {

constexpr double kBurstSeconds = 0.3, kSustainedSeconds = 2, kBandwidthSeconds = 0.3, kPieceSeconds = 5e-3;

/// Times of f, called again and again for `seconds`, at least three times.
template <class F>
std::vector<double> times_of(double seconds, F&& f) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3; spent += times.back()) {
    const auto begin = Clock::now();
    f();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return times;
}

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

/// Times of at least some milliseconds each in which all threads multiply tiles that stay in the first-level cache,
/// over floating-point operations.
std::vector<double> times_of_multiplication(ThreadPool& pool, double seconds) {
  constexpr int64_t kDepth = 128;
  const std::vector<float> a(kTileRows * kDepth), b(kTileColumns * kDepth);
  int64_t steps = 1000;
  const auto multiply = [&] {
    pool.run(pool.size(), [&](int) {
      float sums[kTileRows * kTileColumns] = {};
      for (int64_t i = 0; i < steps; ++i) best_tile().add(kDepth, a.data(), b.data(), sums, kTileColumns);
    });
  };
  while (best(times_of(0, multiply)) < kPieceSeconds) steps *= 2;
  std::vector<double> times = times_of(seconds, multiply);
  const double work = 2.0 * kTileRows * kTileColumns * kDepth * static_cast<double>(steps) * pool.size();
  for (double& time : times) time /= work;
  return times;
}

uint64_t sum_of(const uint64_t* source, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < count; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += source[i + lane];
  return std::accumulate(std::begin(sums), std::end(sums), uint64_t{0});
}

/// The best rate at which all threads read, each a part of its own.
double measure_bandwidth(ThreadPool& pool, const DeviceInfo& device) {
  constexpr int64_t kSmallest = int64_t{256} << 20, kUnit = 8192;
  const int64_t wanted = std::min(std::max(kSmallest, 8 * device.cache_bytes), available_memory_bytes() / 8);
  const int64_t part = std::max(kUnit, wanted / pool.size() / kUnit * kUnit);
  const Buffer buffer(part * pool.size());
  const auto part_of = [&](int thread) { return buffer.data() + part * thread; };
  pool.run(pool.size(), [&](int thread) { std::memset(part_of(thread), 1, static_cast<size_t>(part)); });
  const auto read = times_of(kBandwidthSeconds, [&] {
    pool.run(pool.size(), [&](int thread) {
      [[maybe_unused]] const volatile uint64_t sum = sum_of(reinterpret_cast<uint64_t*>(part_of(thread)), part / 8);
    });
  });
  return static_cast<double>(buffer.bytes()) / best(read);
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool, const DeviceInfo& device) {
  Ceilings ceilings;
  const std::vector<double> burst = times_of_multiplication(pool, kBurstSeconds);
  const Estimate time = median_estimate(burst);
  ceilings.noise = half_width(time) / time.value;
  ceilings.read_bandwidth = measure_bandwidth(pool, device);
  const std::vector<double> sustained = times_of_multiplication(pool, kSustainedSeconds);
  ceilings.dense_burst = 1 / std::min(best(burst), best(sustained));  // others may have been busy in the first
  ceilings.dense_sustained =
      static_cast<double>(sustained.size()) / std::accumulate(sustained.begin(), sustained.end(), 0.0);
  return ceilings;
}

}  // namespace moetune
