// Timed loops for bandwidth, multiply-adds and launches.
#include "backend/cpu/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/machine.h"
#include "base/stats.h"

namespace moetune {
namespace {

constexpr double kBurstSeconds = 0.3, kSustainedSeconds = 2, kBandwidthSeconds = 0.3, kPieceSeconds = 5e-3;
constexpr int kLaunches = 1000;

using Clock = std::chrono::steady_clock;

template <class F>
double seconds_of(F&& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Times of f, called again and again for `seconds`, at least three times.
template <class F>
std::vector<double> times_of(double seconds, F&& f) {
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 3; spent += times.back()) times.push_back(seconds_of(f));
  return times;
}

double best(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

void spin(const Microkernel& kernel, ThreadPool& pool, int64_t steps) {
  pool.run(pool.size(), [&](int) {
    volatile float sink = kernel.fma_loop(steps);
    static_cast<void>(sink);
  });
}

/// The best rate at which all threads read, each a part of its own, and copy.
void measure_bandwidth(const Microkernel& kernel, ThreadPool& pool, const DeviceInfo& device, Ceilings& ceilings) {
  constexpr int64_t kSmallest = int64_t{256} << 20, kUnit = 8192;
  const int64_t wanted = std::min(std::max(kSmallest, 8 * device.cache_bytes), available_memory_bytes() / 8);
  const int64_t part = std::max(kUnit, wanted / pool.size() / kUnit * kUnit);
  const Buffer buffer(part * pool.size());
  const auto part_of = [&](int thread) { return buffer.data() + part * thread; };
  pool.run(pool.size(), [&](int thread) { std::memset(part_of(thread), 1, static_cast<size_t>(part)); });
  const auto read = times_of(kBandwidthSeconds, [&] {
    pool.run(pool.size(), [&](int thread) {
      volatile float sink = kernel.read(reinterpret_cast<const float*>(part_of(thread)), part / 4);
      static_cast<void>(sink);
    });
  });
  const auto copy = times_of(kBandwidthSeconds, [&] {
    pool.run(pool.size(), [&](int thread) {
      std::memcpy(part_of(thread) + part / 2, part_of(thread), static_cast<size_t>(part / 2));
    });
  });
  ceilings.read_bandwidth = static_cast<double>(buffer.bytes()) / best(read);
  ceilings.copy_bandwidth = static_cast<double>(buffer.bytes()) / best(copy);  // half is read, half is written
}

}  // namespace

FmaRate fma_rate(const Microkernel& kernel, ThreadPool& pool, double seconds) {
  int64_t steps = 1000;
  while (seconds_of([&] { spin(kernel, pool, steps); }) < kPieceSeconds) steps *= 2;
  const auto times = times_of(seconds, [&] { spin(kernel, pool, steps); });
  const double work = static_cast<double>(steps) * kernel.fma_flops * pool.size();
  double total = 0;
  for (const double time : times) total += time;
  const Estimate time = median_estimate(times);
  return {.burst = work / best(times),
          .sustained = work * static_cast<double>(times.size()) / total,
          .noise = half_width(time) / time.value};
}

Ceilings measure_ceilings(const Microkernel& kernel, ThreadPool& pool, const DeviceInfo& device) {
  Ceilings ceilings;
  const FmaRate burst = fma_rate(kernel, pool, kBurstSeconds);
  ceilings.noise = burst.noise;
  measure_bandwidth(kernel, pool, device, ceilings);
  std::vector<double> launches;
  launches.reserve(kLaunches);
  for (int i = 0; i < kLaunches; ++i) launches.push_back(seconds_of([&] { pool.run(pool.size(), [](int) {}); }));
  ceilings.launch_seconds = median(launches);
  const FmaRate sustained = fma_rate(kernel, pool, kSustainedSeconds);
  ceilings.dense_burst = std::max(burst.burst, sustained.burst);  // other programs may have been busy in the first
  ceilings.dense_sustained = sustained.sustained;
  return ceilings;
}

}  // namespace moetune
