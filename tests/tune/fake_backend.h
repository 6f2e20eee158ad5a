// A deterministic backend without a device: times are a formula with seeded noise, faults happen where a test says so.
// And the small cells, spaces and candidates that tests of this room share.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/random.h"
#include "built_in.h"
#include "record/table/table.h"
#include "variant/space/space.h"

namespace moetune::fake {

/// What a block time is multiplied with. The same seed gives the same factors.
struct Noise {
  double sigma = 0;     // of the logarithm, block by block
  double drift = 0;     // amplitude of a slow wave that hits all contenders alike
  double outliers = 0;  // share of blocks that something disturbs...
  double outlier_factor = 1.5;
  double period = 400;  // of the wave, in blocks
};

/// Smooth in the logarithm of each knob; the best of small_space() is block_m=48 block_n=64 block_k=128 threads=2.
inline double formula(const Candidate& c) {
  const auto off = [](int value, int best) { return std::abs(std::log2(static_cast<double>(value) / best)); };
  return 100e-6 *
         (1 + 0.2 * off(find_value(c, "block_m").value(), 48) + 0.1 * off(find_value(c, "block_n").value(), 64) +
          0.05 * off(find_value(c, "block_k").value(), 128)) *
         (find_value(c, "threads").value() == 1 ? 1.8 : 1.0);
}

struct Script {
  std::function<double(const Candidate&)> seconds = formula;  // of a launch, without noise
  std::vector<std::pair<std::string, double>> baselines = {{"loop", 300e-6}};
  Noise noise = {};
  uint64_t seed = 1;
  std::function<double(const Candidate& up, const Candidate& down)> together = {};  // of a chain, times their sum
  double waited = 0;                                                                // in every block
  std::function<CompileResult(const Candidate&)> compile = {};                      // empty: ok
  std::function<Verdict(const Contender&)> verify = {};                             // empty: right
  std::function<void(const std::string& call, const Contender&)> before =
      {};                                         // verify, repeat, sample: may throw, sleep or die
  std::function<void(const Problem&)> load = {};  // may throw
  bool compiles_ahead = false;
  std::function<bool(const Candidate&)> slow_to_compile = {};  // after those that are not
  DeviceInfo device = {.kind = DeviceKind::cpu, .name = "fake", .id = "fake", .processors = 2};
};

inline Verdict right() {
  return {.ok = true, .reason = "", .elements = 2048, .mismatches = 0, .normalised_error = 1e-3, .max_ulps = 0.5};
}
inline Verdict wrong() {
  return {.ok = false, .reason = "7 of 2048 elements differ", .elements = 2048, .mismatches = 7};
}

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(Script what = {}) : script(std::move(what)), random_(script.seed), phase_(random_.uniform()) {
    device_ = script.device;
  }

  Script script;
  std::vector<std::string> calls;             // "verify cpu block_m=...", in order
  std::vector<size_t> batches;                // sizes of compile calls
  std::vector<std::vector<Candidate>> ahead;  // what was to be compiled next, call by call
  std::set<Regime> regimes;                   // of all samples
  int loads = 0;

  const DeviceInfo& device() const override { return device_; }
  Json environment() override { return {{"identity", {{"fake", "1"}}}}; }
  std::vector<std::string> baselines() const override {
    std::vector<std::string> names;
    for (const auto& [name, seconds] : script.baselines) names.push_back(name);
    return names;
  }

  std::vector<CompileResult> compile(const Shape&, std::span<const Candidate> candidates) override {
    batches.push_back(candidates.size());
    std::vector<CompileResult> results;
    for (const Candidate& candidate : candidates) {
      calls.push_back("compile " + text(candidate));
      results.push_back(script.compile ? script.compile(candidate) : CompileResult{});
    }
    return results;
  }

  bool compile_ahead(const Shape&, std::span<const Candidate> next, std::span<const Candidate> later) override {
    ahead.emplace_back(next.begin(), next.end());
    ahead.back().insert(ahead.back().end(), later.begin(), later.end());
    return script.compiles_ahead;
  }
  size_t first_compiled(const Shape&, std::span<const Candidate> candidates) override {
    for (size_t i = 0; i < candidates.size(); ++i)
      if (!script.slow_to_compile || !script.slow_to_compile(candidates[i])) return i;
    return 0;
  }

  void load(const Problem& problem) override {
    ++loads;
    if (script.load) script.load(problem);
  }

  void load_layer(const Problem& up, const Problem&) override { load(up); }

  Verdict verify(const Contender& contender) override {
    note("verify", contender);
    return script.verify ? script.verify(contender) : right();
  }

  Repetition repeat(const Contender& contender, double) override {
    note("repeat", contender);
    return {.launches = 100, .different = 0, .reason = ""};
  }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    note("sample", contender);
    regimes.insert(request.regime);
    std::vector<Block> blocks;
    for (int i = 0; i < request.blocks; ++i)
      blocks.push_back(
          {.seconds = true_seconds(contender) * factor(), .launches = 10, .clock_mhz = 0, .waited = script.waited});
    return blocks;
  }

  Ceilings ceilings() override { return {.read_bandwidth = 1e10, .dense_burst = 2e10}; }

  /// How often something was called whose text holds `part`.
  int count(const std::string& part) const {
    return static_cast<int>(std::count_if(
        calls.begin(), calls.end(), [&](const std::string& call) { return call.find(part) != std::string::npos; }));
  }

 private:
  void note(const std::string& call, const Contender& contender) {
    calls.push_back(call + " " + text(contender));
    if (script.before) script.before(call, contender);
  }

  double true_seconds(const Contender& contender) const {
    for (const auto& [name, seconds] : script.baselines)
      if (name == contender.baseline) return seconds;
    const auto& [baseline, up, down] = contender;
    if (!down.variant) return script.seconds(up);
    if (!up.variant) return script.seconds(down);
    return (script.seconds(up) + script.seconds(down)) * (script.together ? script.together(up, down) : 1);
  }

  double factor() {
    const Noise& noise = script.noise;
    const double wave = std::sin(2 * std::numbers::pi * (phase_ + static_cast<double>(blocks_++) / noise.period));
    double factor = std::exp(noise.sigma * random_.normal()) * (1 + noise.drift * wave);
    if (random_.uniform() < noise.outliers) factor *= noise.outlier_factor;
    return factor;
  }

  DeviceInfo device_;
  Random random_;
  double phase_;
  int64_t blocks_ = 0;
};

inline Cell small_cell(int64_t tokens = 16, const std::string& routing = "uniform") {
  Cell cell;
  cell.shape.layer = {.model = "custom", .projection = Projection::up, .experts = 4, .top_k = 2, .n = 64, .k = 32};
  cell.tokens = tokens;
  cell.routing = parse_routing(routing);
  return cell;
}

/// 48 candidates of the cpu variant, all legal.
inline SearchSpace small_space() {
  return {.name = "small",
          .variants = {{.variant = built_in().find("cpu"),
                        .values = {{"block_m", {16, 24, 48, 96}},
                                   {"block_n", {32, 64, 128}},
                                   {"block_k", {64, 128}},
                                   {"threads", {1, 2}}}}}};
}

inline Candidate cpu(int block_m, int block_n = 64, int block_k = 128, int threads = 2) {
  return candidate_of("cpu", {block_m, block_n, block_k, threads});
}

inline Candidate best_of_small_space() { return cpu(48, 64, 128, 2); }

inline Contender contender(const Candidate& candidate) { return {.baseline = "", .candidate = candidate}; }
inline Contender contender(const std::string& baseline) { return {.baseline = baseline, .candidate = {}}; }

}  // namespace moetune::fake
