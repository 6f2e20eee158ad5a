// The measurements of `doctor`.

#include <algorithm>
#include <chrono>
#include <functional>

#include "backend/cuda/sampler.h"
#include "base/stats.h"

namespace moetune {
namespace {

constexpr int64_t kBytes = int64_t{2} << 30;  // a buffer: far beyond any L2
constexpr int64_t kDense = 8192;              // m = n = k
constexpr int kBurstRuns = 12;                // few: before the power limit lowers the clock
constexpr double kSustainedSeconds = 2;
constexpr int kNodes = 1000;

}  // namespace

Ceilings measure_ceilings(const Service& service, Cublas& cublas, const Stream& stream, int sms) {
  const DeviceBuffer a(kBytes), b(kBytes);
  const Sampler sampler(stream, service, sms);
  service.fill(a.data(), kBytes / 2, Values::random, 1, kStreamX, stream.stream);
  service.fill(b.data(), kBytes / 2, Values::random, 2, kStreamW, stream.stream);
  Ceilings ceilings;
  const auto best = [&](int runs, const std::function<void()>& work) {
    double seconds = sampler.time_once(work);
    for (int i = 1; i < runs; ++i) seconds = std::min(seconds, sampler.time_once(work));
    return seconds;
  };
  ceilings.read_bandwidth = static_cast<double>(kBytes) /
                            best(20, [&] { service.read_all(a.data(), kBytes, b.as<unsigned>(), stream.stream); });
  ceilings.copy_bandwidth =
      2.0 * kBytes / best(20, [&] { service.copy_all(a.data(), kBytes, b.data(), stream.stream); });

  service.fill(b.data(), kDense * kDense, Values::random, 2, kStreamW, stream.stream);
  const double flops = 2.0 * kDense * kDense * kDense;
  char* c = b.data() + kBytes / 2;
  const auto dense = [&] { cublas.dense(a.data(), b.data(), c, kDense); };
  dense();
  std::vector<double> times;
  for (int i = 0; i < kBurstRuns; ++i) times.push_back(sampler.time_once(dense));
  ceilings.dense_burst = flops / median(times);
  const Estimate time = median_estimate(times);
  ceilings.noise = half_width(time) / time.value;
  times.clear();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kSustainedSeconds)
    times.push_back(sampler.time_once(dense));
  ceilings.dense_sustained = flops / median(std::span(times).subspan(times.size() / 2));

  Sampler graphs(stream, service, sms);
  SampleRequest request{.blocks = 5, .block_seconds = kNodes * 2e-6, .hot = true};
  std::vector<double> launches;
  for (const Block& block : graphs.sample(
           "nothing", [&](int) { service.nothing(stream.stream); }, 1, request))
    launches.push_back(block.seconds);
  ceilings.launch_seconds = median(launches);
  return ceilings;
}

}  // namespace moetune
