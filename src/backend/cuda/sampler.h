// Timed blocks: a CUDA graph of launches over rotating operand sets, between two event nodes. In the regime `burst` a
// GPU that lowers its clock under load is left idle between blocks until it is back near its best. In the regime
// `sustained` it is under load all the time, from before the first block until its clock is steady.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/libraries/cublas.h"
#include "backend/cuda/operands.h"
#include "backend/cuda/verify/service.h"

namespace moetune {

/// Enqueues one launch of a contender on an operand set; captured into graphs.
using Enqueue = std::function<void(int set)>;

class Sampler {
 public:
  Sampler(const Stream& stream, const Service& service, int sms);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  /// Blocks of the contender called `key`; its graph is kept for the next call. Throws CandidateFault.
  std::vector<Block> sample(const std::string& key, const Enqueue& enqueue, int sets, const SampleRequest& request);

  /// Forgets all graphs: operands or kernels have changed.
  void clear();

  /// Seconds of one run of `work`, by events outside of any graph.
  double time_once(const std::function<void()>& work) const;

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;
    int launches = 0;
    double block_seconds = 0;
    bool hot = false;
  };
  Graph& graph_of(const std::string& key, const Enqueue& enqueue, int sets, const SampleRequest& request);
  void warm_up(const Enqueue& enqueue) const;
  Block time_block(const Graph& graph);
  void load(const std::string& key, const Graph& graph);
  double clock_mhz() const;

  const Stream& stream_;
  const Service& service_;
  int sms_;
  DeviceBuffer clocks_;        // [2][sms][2]: before and after a block
  double best_clock_mhz_ = 0;  // of all blocks so far
  std::string loaded_key_;     // whose blocks the GPU ran last in the sustained regime, and until when
  std::chrono::steady_clock::time_point loaded_until_ = {};
  std::map<std::string, Graph> graphs_;
};

/// What the GPU reaches at best: bandwidth, dense GEMM, launch cost. Takes about three seconds and 4 GB; OutOfMemory
/// where the GPU has less free.
Ceilings measure_ceilings(const Service& service, Cublas& cublas, const Stream& stream, int sms);

}  // namespace moetune
