// Capturing, replaying and reading the clock; the measurements of `doctor`.
#include "backend/cuda/sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "base/stats.h"

namespace moetune {
namespace {

constexpr int kMaxLaunches = 4096;       // in a graph
constexpr size_t kMaxGraphs = 32;        // kept
constexpr double kWarmUpSeconds = 5e-3;  // of load before a first block; the SM clock rises within a few ms
constexpr double kNearBest = 0.97;       // of the best clock seen: below, the GPU is throttling
constexpr double kIdlePerBlock = 1;      // idle time for each second of a throttled block

// Sustained: the clock is steady where its medians over two windows of blocks are equal but for this part.
constexpr size_t kWindowBlocks = 4;
constexpr double kSteady = 0.01;
constexpr double kRestSeconds = 20e-3;  // without work: after that the GPU is no longer under load

constexpr int64_t kBytes = int64_t{2} << 30;  // a buffer: far beyond any L2
constexpr int64_t kDense = 8192;              // m = n = k
constexpr int kReads = 20;
constexpr int kBurstRuns = 12;  // few: before the power limit lowers the clock
constexpr double kSustainedSeconds = 2;

}  // namespace

Sampler::Sampler(const Stream& stream, const Service& service, int sms)
    : stream_(stream), service_(service), sms_(sms), clocks_(int64_t{2} * sms * 16) {
  set_on_device(clocks_.data(), 0, static_cast<size_t>(clocks_.size()));
}

Sampler::~Sampler() { clear(); }

void Sampler::clear() {
  for (auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph.exec);
  graphs_.clear();
}

double Sampler::time_once(const std::function<void()>& work) const {
  require(cudaEventRecord(stream_.begin, stream_.stream), "cannot record an event");
  work();
  require_candidate(cudaGetLastError(), "the launch failed");
  require_candidate(cudaEventRecord(stream_.end, stream_.stream), "the kernel failed");  // it may have, meanwhile
  require_candidate(cudaEventSynchronize(stream_.end), "the kernel failed");
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, stream_.begin, stream_.end), "cannot read the events");
  return milliseconds * 1e-3;
}

void Sampler::warm_up(const Enqueue& enqueue) const {
  const auto start = std::chrono::steady_clock::now();
  do time_once([&] { enqueue(0); });
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kWarmUpSeconds);
}

Sampler::Graph& Sampler::graph_of(const std::string& key, const Enqueue& enqueue, int sets,
                                  const SampleRequest& request) {
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) {
    if (found->second.block_seconds == request.block_seconds && found->second.hot == request.hot) return found->second;
    cudaGraphExecDestroy(found->second.exec);
    graphs_.erase(found);
  }
  if (graphs_.size() >= kMaxGraphs) clear();

  warm_up(enqueue);
  const double once = time_once([&] { enqueue(std::min(1, sets - 1)); });
  const int rotation = request.hot ? 1 : sets;
  // Whole rotations, so that the next block too finds its first set evicted.
  const double wanted =
      std::clamp(request.block_seconds / std::max(once, 1e-6), 1.0, static_cast<double>(kMaxLaunches));
  const int launches = std::max(1, static_cast<int>(std::lround(wanted / rotation))) * rotation;

  require(cudaStreamBeginCapture(stream_.stream, cudaStreamCaptureModeThreadLocal), "cannot begin a capture");
  cudaGraph_t graph = nullptr;
  try {
    service_.read_clocks(clocks_.as<unsigned long long>(), sms_, stream_.stream);
    require(cudaEventRecordWithFlags(stream_.begin, stream_.stream, cudaEventRecordExternal),
            "cannot capture an event");
    for (int i = 0; i < launches; ++i) enqueue(i % rotation);
    require(cudaEventRecordWithFlags(stream_.end, stream_.stream, cudaEventRecordExternal), "cannot capture an event");
    service_.read_clocks(clocks_.as<unsigned long long>(clocks_.size() / 2), sms_, stream_.stream);
  } catch (...) {
    cudaStreamEndCapture(stream_.stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  require_candidate(cudaStreamEndCapture(stream_.stream, &graph), "cannot end the capture");
  Graph made{.launches = launches, .block_seconds = request.block_seconds, .hot = request.hot};
  const cudaError_t instantiated = cudaGraphInstantiate(&made.exec, graph, 0);
  cudaGraphDestroy(graph);
  require_candidate(instantiated, "cannot instantiate the graph");
  require(cudaGraphUpload(made.exec, stream_.stream), "cannot upload the graph");
  return graphs_.emplace(key, made).first->second;
}

// The mean clock of all SMs between the two readings of the last block.
double Sampler::clock_mhz() const {
  std::vector<unsigned long long> readings(static_cast<size_t>(clocks_.size() / 8));
  require(cudaMemcpy(readings.data(), clocks_.data(), static_cast<size_t>(clocks_.size()), cudaMemcpyDeviceToHost),
          "cannot read the clocks");
  double cycles = 0, nanoseconds = 0;
  for (size_t before = 0, after = readings.size() / 2; after < readings.size(); before += 2, after += 2) {
    if (readings[before] == 0 || readings[after] == 0) continue;  // an SM that no block was put on
    cycles += static_cast<double>(readings[after] - readings[before]);
    nanoseconds += static_cast<double>(readings[after + 1] - readings[before + 1]);
  }
  return nanoseconds > 0 ? cycles / nanoseconds * 1e3 : 0;
}

Block Sampler::time_block(const Graph& graph) {
  require_candidate(cudaGraphLaunch(graph.exec, stream_.stream), "cannot launch the graph");
  require_candidate(cudaStreamSynchronize(stream_.stream), "the kernel failed");
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, stream_.begin, stream_.end), "cannot read the events");
  return {.seconds = milliseconds * 1e-3 / graph.launches, .launches = graph.launches, .clock_mhz = clock_mhz()};
}

// Runs the contender's own blocks until the clock is steady under them: how far it falls depends on the kernel.
void Sampler::load(const std::string& key, const Graph& graph) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  if (loaded_key_ == key && seconds_since(loaded_until_) < kRestSeconds) return;
  const Clock::time_point begin = Clock::now();
  std::vector<double> clocks;
  do clocks.push_back(time_block(graph).clock_mhz);
  while (!has_settled(clocks, kWindowBlocks, kSteady) && seconds_since(begin) < kMaxLoadSeconds);
}

std::vector<Block> Sampler::sample(const std::string& key, const Enqueue& enqueue, int sets,
                                   const SampleRequest& request) {
  const bool sustained = request.regime == Regime::sustained;
  SampleRequest sized = request;
  if (sustained) sized.block_seconds = std::max(request.block_seconds, kSustainedBlockSeconds);
  const Graph& graph = graph_of(key, enqueue, sets, sized);
  if (sustained) load(key, graph);
  std::vector<Block> blocks;
  for (int i = 0; i < request.blocks; ++i) {
    blocks.push_back(time_block(graph));
    best_clock_mhz_ = std::max(best_clock_mhz_, blocks.back().clock_mhz);
    if (!sustained && blocks.back().clock_mhz < kNearBest * best_clock_mhz_)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(kIdlePerBlock * blocks.back().seconds * graph.launches));
  }
  loaded_key_ = sustained ? key : "";
  loaded_until_ = std::chrono::steady_clock::now();
  return blocks;
}

Ceilings measure_ceilings(const Service& service, Cublas& cublas, const Stream& stream, int sms) {
  const DeviceBuffer a(kBytes), b(kBytes);
  const Sampler sampler(stream, service, sms);
  service.fill(a.data(), kBytes / 2, Values::random, 1, kStreamX, stream.stream);
  service.fill(b.data(), kBytes / 2, Values::random, 2, kStreamW, stream.stream);
  Ceilings ceilings;
  const auto read = [&] { service.read_all(a.data(), kBytes, b.as<unsigned>(), stream.stream); };
  double seconds = sampler.time_once(read);
  for (int i = 1; i < kReads; ++i) seconds = std::min(seconds, sampler.time_once(read));
  ceilings.read_bandwidth = static_cast<double>(kBytes) / seconds;

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
  return ceilings;
}

}  // namespace moetune
