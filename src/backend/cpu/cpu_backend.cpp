// Puts operands, references, the variant and the baseline together behind the Backend seam.
#include "backend/cpu/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <optional>

#include "backend/chain.h"
#include "backend/cpu/compare.h"
#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/operands.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/stats.h"
#include "variant/cpu/cpu.h"

namespace moetune {
namespace {

// The baseline: fixed blocks on all threads. A control: no knob changes its time, but the machine's state does, about
// as much as a candidate's.
constexpr std::string_view kLoop = "loop";
constexpr CpuKnobs kLoopBlocks = {.block_m = 24, .block_n = 64, .block_k = 64};

/// What verification needs beside the operands: made by the first that asks for it.
struct References {
  OperandSet integers;
  std::vector<float> integer_weights;
  Reference integer_results;
  Reference random_results;
};

struct Loaded {
  Shape shape;
  Product product;
  std::vector<float> topk_weights;
  std::vector<OperandSet> sets;
  std::optional<References> references;
  std::unique_ptr<Loaded> down = {};  // of a layer, whose `this` is up: as many sets, and A of each is D of up's
};

/// Tells one build of the variant's code from another.
std::string kernels_hash() {
  Hash hash;
  for (const char* file : {"grouped_gemm.cpp", "matrices.cpp"})
    hash.add(embedded_file(fmt::format("src/backend/cpu/{}", file)).value_or(""));
  return hash.hex();
}

References references_of(const Loaded& loaded, ThreadPool& pool) {
  const Product& product = loaded.product;
  References references;
  references.integers = make_set(product, Values::integer, pool);
  references.integer_weights = make_topk_weights(product, Values::integer);
  const Matrices integers = matrices_of(references.integers, references.integer_weights);
  const Matrices randoms = matrices_of(loaded.sets[0], loaded.topk_weights);
  reset_output(product, loaded.sets[0], pool);
  references.integer_results = rounded_reference(product, integers, pool);
  references.random_results = unrounded_reference(product, randoms, pool);
  return references;
}

class CpuBackend : public Backend {
 public:
  CpuBackend() : device_(cpu_device()), pool_(device_.processors) {}

  const DeviceInfo& device() const override { return device_; }

  Json environment() override {
    return {{"identity",
             {{"backend", "cpu"}, {"device", device_.name}, {"isa", best_tile().isa}, {"kernels", kernels_hash()}}},
            {"processors", std::to_string(device_.processors)},
            {"compiler", __VERSION__}};
  }

  std::vector<std::string> baselines() const override { return {std::string(kLoop)}; }

  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    return mapped(candidates, [&](const Candidate& candidate) -> CompileResult {
      const auto reason = cannot_run(candidate, shape, device_);
      return {.status = reason ? Status::compile_error : Status::ok, .reason = reason.value_or("")};
    });
  }

  void load(const Problem& problem) override {
    loaded_.reset();
    loaded_ = load_one(problem, {});
    next_set_ = 0;
  }

  void load_layer(const Problem& up, const Problem& down) override {
    load(up);
    loaded_->down = load_one(down, loaded_->sets.size());
    for (size_t set = 0; set < loaded_->sets.size(); ++set)  // what down reads alone
      launch_up({.baseline = std::string(kLoop)}, set);
  }

  void make_references() override {
    Loaded& loaded = need_problem();
    if (!loaded.references) loaded.references = references_of(loaded, pool_);
  }

  Verdict verify(const Contender& contender) override {
    Loaded& loaded = require_runnable(contender);
    if (loaded.down) return verify_layer(parts_of(contender));
    make_references();
    const References& references = *loaded.references;
    run_anew(contender, references.integers, references.integer_weights);
    const Verdict exact = compare_exact(loaded.product, references.integers, references.integer_results, pool_);
    run_anew(contender, loaded.sets[0], loaded.topk_weights);
    Verdict verdict = compare_close(loaded.product, loaded.sets[0], references.random_results, pool_);
    verdict.ok = verdict.ok && exact.ok;
    verdict.elements += exact.elements;
    verdict.mismatches = exact.mismatches;
    if (!exact.ok) verdict.reason = exact.reason;
    return verdict;
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    const Loaded& loaded = require_runnable(contender);
    const OperandSet& set = loaded.sets[0];
    run_anew(contender, set, loaded.topk_weights);
    const auto results = results_of(loaded.product);
    const std::vector<std::vector<std::byte>> first = mapped(results, [&](const auto& result) {
      const Output& output = set.*result.second;
      return std::vector<std::byte>(output.data(), output.data() + output.bytes());
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    Repetition repetition;
    do {
      run_anew(contender, set, loaded.topk_weights);
      ++repetition.launches;
      const int64_t before = repetition.different;
      for (size_t i = 0; i < results.size() && repetition.different == before; ++i)
        if (const auto at = first_difference(set.*results[i].second, first[i]); at && repetition.different++ == 0)
          repetition.reason = fmt::format("launch {} differs from the first, at byte {} of {}", repetition.launches,
                                          *at, name(results[i].first.matrix));
    } while (std::chrono::steady_clock::now() < end);
    return repetition;
  }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    require_runnable(contender);
    const int launches = launches_in(contender, request);
    std::vector<Block> blocks;
    blocks.reserve(static_cast<size_t>(std::max(0, request.blocks)));
    for (int i = 0; i < request.blocks; ++i) blocks.push_back(time_block(contender, launches, request.hot));
    return blocks;
  }

  // Multiply-adds in the first-level cache, for half a second.
  Ceilings ceilings() override {
    constexpr double kSeconds = 0.5, kPieceSeconds = 5e-3;
    constexpr int64_t kDepth = 128;
    const std::vector<float> a(kTileRows * kDepth), b(kTileColumns * kDepth);
    int64_t steps = 1000;
    const auto multiply = [&] {
      const auto begin = std::chrono::steady_clock::now();
      pool_.run(pool_.size(), [&](int) {
        float sums[kTileRows * kTileColumns] = {};
        for (int64_t i = 0; i < steps; ++i) best_tile().add(kDepth, a.data(), b.data(), sums, kTileColumns);
      });
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    while (multiply() < kPieceSeconds) steps *= 2;
    std::vector<double> times;
    for (double spent = 0; spent < kSeconds || times.size() < 3; spent += times.back()) times.push_back(multiply());
    const double work = 2.0 * kTileRows * kTileColumns * kDepth * static_cast<double>(steps) * pool_.size();
    const Estimate time = median_estimate(times);
    return {.dense_burst = work / *std::ranges::min_element(times), .noise = half_width(time) / time.value};
  }

 private:
  /// `sets`: as many as memory and caches ask for, unless it is given.
  std::unique_ptr<Loaded> load_one(const Problem& problem, std::optional<size_t> sets) {
    Product product = product_of(problem);
    const MemoryPlan memory = plan_memory(product, device_, available_memory_bytes());
    try {
      std::vector<float> weights = make_topk_weights(product, Values::random);
      auto loaded = std::make_unique<Loaded>(Loaded{problem.shape, std::move(product), std::move(weights), {}, {}});
      loaded->sets = make_sets(loaded->product, static_cast<int>(sets.value_or(memory.sets)), pool_);
      return loaded;
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("the system denied memory that it reports as free", memory.total_bytes());
    }
  }

  Loaded& need_problem() {
    if (!loaded_) throw Error(Exit::bug, "no problem is loaded");
    return *loaded_;
  }

  Loaded& require_runnable(const Contender& contender) {
    Loaded& loaded = need_problem();
    const auto require = [&](const Loaded& part, const std::optional<Contender>& runs) {
      if (!runs) return;
      if (!runs->baseline.empty() && runs->baseline != kLoop)
        throw unknown_word("baseline", runs->baseline, baselines());
      if (!runs->baseline.empty()) return;
      if (const auto reason = cannot_run(runs->candidate, part.shape, device_))
        throw CandidateFault(Status::illegal, *reason);
    };
    const auto [up, down] = parts_of(contender);
    require(loaded, up);
    if (loaded.down) require(*loaded.down, down);
    return loaded;
  }

  CpuKnobs knobs_of(const Contender& contender) const {
    if (contender.baseline.empty())
      return cpu_knobs(contender.candidate.variant ? contender.candidate : contender.down);
    CpuKnobs knobs = kLoopBlocks;
    knobs.threads = pool_.size();
    return knobs;
  }

  /// `up`: the set whose D is A, in place of the set's own.
  void launch(const Loaded& loaded, const Contender& contender, const OperandSet& set,
              const std::vector<float>& weights, const OperandSet* up = nullptr) {
    Matrices matrices = matrices_of(set, weights);
    if (up) matrices.a = up->d.data();
    if (up && up->d_scales.data()) matrices.a_scales = reinterpret_cast<const float*>(up->d_scales.data());
    grouped_gemm(loaded.product, matrices, knobs_of(contender), pool_, workspace_);
  }

  /// The parts of a layer. X of down is Y of up, in the set of the same place.
  void launch_up(const Contender& part, size_t set) {
    launch(*loaded_, part, loaded_->sets[set], loaded_->topk_weights);
  }
  void launch_down(const Contender& part, size_t set) {
    const Loaded& down = *loaded_->down;
    launch(down, part, down.sets[set], down.topk_weights, &loaded_->sets[set]);
  }

  void launch_on(const Contender& contender, size_t set) {
    if (!loaded_->down) return launch_up(contender, set);
    const auto [up, down] = parts_of(contender);
    if (up) launch_up(*up, set);
    if (down) launch_down(*down, set);
  }

  void run_anew(const Contender& contender, const OperandSet& set, const std::vector<float>& weights) {
    reset_output(loaded_->product, set, pool_);
    launch(*loaded_, contender, set, weights);
  }

  Verdict verify_layer(const LayerParts& parts) {
    const Loaded &up = *loaded_, &down = *up.down;
    const Output& result = down.sets[0].d;
    return compare_chained(
        {.clear = [&] { reset_output(up.product, up.sets[0], pool_), reset_output(down.product, down.sets[0], pool_); },
         .up = [&] { launch_up(parts.up.value(), 0); },
         .down = [&] { launch_down(parts.down.value(), 0); },
         .wait = [] {},
         .result = [&] { return std::vector(result.data(), result.data() + result.bytes()); }});
  }

  /// Seconds a launch, over sets in turn: each comes again only after all others.
  double time_launches(const Contender& contender, int launches, bool hot) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) {
      launch_on(contender, next_set_);
      if (!hot) next_set_ = (next_set_ + 1) % loaded_->sets.size();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / launches;
  }

  /// Block::waited is the fraction of the processors that other programs used, on the block's own processors or beside
  /// them.
  Block time_block(const Contender& contender, int launches, bool hot) {
    const double waited = seconds_without_processor();
    const double seconds = time_launches(contender, launches, hot);
    const int threads = knobs_of(contender).threads;
    const double share = (seconds_without_processor() - waited) / (seconds * launches * threads);
    return {
        .seconds = seconds, .launches = launches, .waited = std::max(std::clamp(share, 0.0, 1.0), other_load_.share())};
  }

  /// How many launches a block takes, from the best of a few. The first warms up scratch memory and threads, and counts
  /// only if it alone takes much longer than a block.
  int launches_in(const Contender& contender, const SampleRequest& request) {
    constexpr int kTries = 4;
    constexpr double kMaxLaunches = 1e6;
    if (time_launches(contender, 1, request.hot) > 100 * request.block_seconds) return 1;
    double best = time_launches(contender, 1, request.hot);
    for (int i = 1; i < kTries && best < request.block_seconds; ++i)
      best = std::min(best, time_launches(contender, 1, request.hot));
    return static_cast<int>(std::clamp(std::round(request.block_seconds / std::max(best, 1e-9)), 1.0, kMaxLaunches));
  }

  DeviceInfo device_;
  ThreadPool pool_;
  Workspace workspace_;
  std::unique_ptr<Loaded> loaded_;
  size_t next_set_ = 0;
  OtherLoad other_load_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace moetune
