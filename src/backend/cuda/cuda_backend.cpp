// The Backend of one GPU: puts compiler, operands, verifier and sampler together.
#include "backend/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "backend/chain.h"
#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/libraries/cublas.h"
#include "backend/cuda/operands.h"
#include "backend/cuda/sampler.h"
#include "backend/cuda/verify/verifier.h"
#include "base/error.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

constexpr const char* kLoop = "cublas-loop";
constexpr const char* kGrouped = "cublas-grouped";
constexpr const char* kLoopOf16 = "cublas-loop-bf16";
constexpr size_t kMaxKernels = 64;    // loaded at once
constexpr size_t kMaxCompiled = 256;  // kept in memory; the cache on disk has the others

// The same problem of a quantised layer in bf16: what kLoopOf16 multiplies and is verified on.
Problem in_bf16(Problem problem) {
  Layer& layer = problem.shape.layer;
  layer.format = find_format("bf16");
  return problem;
}

struct Multiplied {
  Operands operands;
  std::optional<Verifier> verifier;
};

// What belongs to the loaded problem; destroyed with it, in reverse order.
struct Loaded {
  Problem problem;
  Multiplied own;
  std::optional<Multiplied> of_16;                               // for kLoopOf16
  std::vector<DeviceBuffer> grouped_pointers;                    // a set
  std::map<std::string, std::shared_ptr<const Kernel>> kernels;  // by candidate text
  std::optional<Sampler> sampler;
  std::unique_ptr<Loaded> down = {};  // of a layer, of which this is up
};

class CudaBackend : public Backend {
 public:
  CudaBackend(int ordinal, const BackendOptions& options)
      : device_((require(cudaSetDevice(ordinal), "cannot use the device"), cuda_device(ordinal))),
        compiler_{.arch = arch(device_),
                  .sources = kernel_sources(options.kernels_folder),
                  .cache = options.cache,
                  .threads = options.compile_threads},
        services_(compiler_),
        stream_(std::make_unique<Stream>()),
        cublas_(std::make_unique<Cublas>(stream_->stream)) {}

  const DeviceInfo& device() const override { return device_; }

  Json environment() override {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
    const GpuState state = gpu_state(device_.id);
    return {{"identity",
             {{"backend", "cuda"},
              {"device", device_.name},
              {"kernels", hash(compiler_.sources)},
              {"nvrtc", nvrtc_version()}}},
            {"driver", state.driver.empty() ? "unknown" : state.driver},
            {"cuda_driver", version(driver)},
            {"cuda_runtime", version(runtime)},
            {"cublas", cublas_->version()},
            {"power_limit_watts", rounded(state.power_limit_watts, 4)},
            {"max_clock_mhz", rounded(state.max_clock_mhz, 5)}};
  }

  std::vector<std::string> baselines() const override { return {kLoop, kGrouped, kLoopOf16}; }

  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    return compile_candidates(shape, candidates, device_,
                              [&](const std::vector<std::string>& units) { return compiled_.compile(units); });
  }

  void load(const Problem& problem) override {
    loaded_.reset();
    auto loaded = load_one(problem, nullptr);
    loaded->sampler.emplace(*stream_, services_.of(loaded->own.operands.product.d.type.dtype), device_.processors);
    loaded_ = std::move(loaded);
  }

  void load_layer(const Problem& up, const Problem& down) override {
    load(up);
    try {
      loaded_->down = load_one(down, &loaded_->own.operands);
    } catch (...) {
      loaded_.reset();
      throw;
    }
  }

  Verdict verify(const Contender& contender) override {
    if (need_problem().down) return verify_layer(contender);
    const Verifier& verifier = need_verifier(contender);
    const Enqueue enqueue = enqueue_of(contender);
    const Kernel* kernel = contender.baseline.empty() ? kernel_of(*loaded_, contender.candidate).get() : nullptr;
    if (kernel) kernel->clear(stream_->stream);
    const Operands& operands = multiplied_by(*loaded_, contender).operands;
    const Product& product = operands.product;
    const bool of_cublas_16 =
        !kernel && (product.accumulates || is_finished(product)) && operands.plain.d.type.dtype != Dtype::fp32;
    std::optional<Weighting> weighting;  // a pack's own; others follow the product
    if (const Pack* pack = kernel ? contender.candidate.variant->pack.get() : nullptr)
      weighting = weighting_of(*pack, loaded_->problem.shape);
    Verdict verdict = verifier.verify([&] { enqueue(0); }, of_cublas_16, weighting);
    if (const std::string left = kernel ? kernel->left_nonzero() : ""; verdict.ok && !left.empty()) {
      verdict.ok = false;
      verdict.reason = fmt::format("the kernel left '{}' not zero, but the next launch needs zeros", left);
    }
    return verdict;
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    const Verifier& verifier = need_verifier(contender);
    const Enqueue enqueue = enqueue_of(contender);
    return verifier.repeat([&] { enqueue(0); }, seconds);
  }

  void make_references() override { need_verifier({}); }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    Loaded& loaded = need_problem();
    const auto sets_of = [&](Loaded& part, const Contender& of_part) {
      return multiplied_by(part, of_part).operands.sets;
    };
    const LayerParts parts = loaded.down ? parts_of(contender) : LayerParts{contender, {}};
    int sets = std::numeric_limits<int>::max();
    if (parts.up) sets = sets_of(loaded, *parts.up);
    if (parts.down) sets = std::min(sets, sets_of(*loaded.down, *parts.down));
    return loaded.sampler->sample(text(contender), enqueue_of(contender), sets, request);
  }

  Ceilings ceilings() override {
    loaded_.reset();
    return measure_ceilings(services_.of(Dtype::bf16), *cublas_, *stream_, device_.processors);
  }

 private:
  std::unique_ptr<Loaded> load_one(const Problem& problem, const Operands* before) {
    auto loaded = std::make_unique<Loaded>();
    loaded->problem = problem;
    loaded->own.operands = make_operands(product_of(problem), device_, services_, stream_->stream, before);
    require(cudaStreamSynchronize(stream_->stream), "cannot fill the operands");
    return loaded;
  }

  Loaded& need_problem() {
    if (!loaded_) throw Error(Exit::bug, "no problem is loaded");
    return *loaded_;
  }

  Multiplied& multiplied_by(Loaded& loaded, const Contender& contender) {
    if (contender.baseline != kLoopOf16) return loaded.own;
    if (!is_quantised(loaded.problem.shape.layer.format))
      throw CandidateFault(Status::illegal, fmt::format("this layer is not quantised: see {}", kLoop));
    try {
      if (!loaded.of_16) {
        Product product = product_of(in_bf16(loaded.problem));
        loaded.of_16.emplace();
        loaded.of_16->operands = make_operands(std::move(product), device_, services_, stream_->stream);
        require(cudaStreamSynchronize(stream_->stream), "cannot fill the operands");
      }
    } catch (const OutOfMemory& error) {
      loaded.of_16.reset();
      throw CandidateFault(Status::illegal, fmt::format("its operands {}", error.what()));
    }
    return *loaded.of_16;
  }

  const Verifier& need_verifier(const Contender& contender) {
    Multiplied& multiplied = multiplied_by(need_problem(), contender);
    if (!multiplied.verifier) multiplied.verifier.emplace(multiplied.operands, services_, *cublas_, *stream_);
    return *multiplied.verifier;
  }

  // Of a layer both parts, back to back, or the one that the contender has.
  Enqueue enqueue_of(const Contender& contender) {
    Loaded& loaded = need_problem();
    if (!loaded.down) return enqueue_of(loaded, contender);
    const auto [first, second] = parts_of(contender);
    if (!second) return enqueue_of(loaded, first.value());
    if (!first) return enqueue_of(*loaded.down, *second);
    return [up = enqueue_of(loaded, *first), down = enqueue_of(*loaded.down, *second, true)](int set) {
      up(set), down(set);
    };
  }

  Enqueue enqueue_of(Loaded& loaded, const Contender& contender, bool after_up = false) {
    const Operands& operands = multiplied_by(loaded, contender).operands;
    const OperandType& weights = operands.product.b.type;
    if (contender.baseline == kLoop && has_scales(weights) && weights.dtype != Dtype::fp8)
      throw CandidateFault(Status::illegal, fmt::format("cuBLAS is not a baseline for {}", name(weights.dtype)));
    if (contender.baseline == kLoop && has_scales(weights)) {
      if (!cublaslt_) cublaslt_ = std::make_unique<CublasLt>(stream_->stream);
      return [&](int set) {
        run_baseline(operands, set, [&](const GroupedGemm&) { cublaslt_->loop(operands.scaled_gemm(set)); });
      };
    }
    if (contender.baseline == kLoop || contender.baseline == kLoopOf16)
      return
          [&](int set) { run_baseline(operands, set, [&](const GroupedGemm& gemm) { cublas_->loop(gemm, false); }); };
    if (contender.baseline == kGrouped) {
      if (has_scales(weights))
        throw CandidateFault(Status::illegal, "cuBLAS has no grouped GEMM of operands with scales");
      if (!has_grouped_gemm(operands.plain))
        throw CandidateFault(Status::illegal, fmt::format("cuBLAS has no grouped GEMM for the operands of {}",
                                                          name(loaded.problem.shape.op)));
      while (static_cast<int>(loaded.grouped_pointers.size()) < operands.sets)
        loaded.grouped_pointers.push_back(
            Cublas::grouped_pointers(operands.gemm(static_cast<int>(loaded.grouped_pointers.size()))));
      return [&](int set) {
        run_baseline(operands, set, [&](const GroupedGemm& gemm) {
          cublas_->grouped(gemm, loaded.grouped_pointers[static_cast<size_t>(set)]);
        });
      };
    }
    if (!contender.baseline.empty()) throw unknown_word("baseline", contender.baseline, baselines());
    return [kernel = kernel_of(loaded, contender.candidate), after_up, this](int set) {
      kernel->enqueue(set, stream_->stream, after_up);
    };
  }

  Verdict verify_layer(const Contender& contender) {
    const auto [first, second] = parts_of(contender);
    const Enqueue up = enqueue_of(*loaded_, first.value()), down = enqueue_of(*loaded_->down, second.value(), true);
    const auto bytes_of_d = [](const Operands& o) {
      return static_cast<size_t>(o.product.d.rows * row_bytes(o.product.d));
    };
    const auto clear = [&](const Operands& o) {
      for (const SetBuffer* buffer : {&o.d, &o.d_scales})
        if (buffer->stride > 0) set_in_order(buffer->of(0), 0xff, buffer->stride, stream_->stream);
    };
    const Operands& last = loaded_->down->own.operands;
    return compare_chained(
        {.clear = [&] { clear(loaded_->own.operands), clear(last); },
         .up = [&] { up(0); },
         .down = [&] { down(0); },
         .wait = [&] { require_candidate(cudaStreamSynchronize(stream_->stream), "the kernel failed"); },
         .result =
             [&] {
               std::vector<std::byte> read(bytes_of_d(last));
               require(cudaMemcpy(read.data(), last.d.of(0), read.size(), cudaMemcpyDeviceToHost),
                       "cannot read a result");
               return read;
             }});
  }

  // Without a fused kernel rows are moved and weighted before and after: that is part of the baseline's time.
  void run_baseline(const Operands& operands, int set, const std::function<void(const GroupedGemm&)>& multiply) {
    operands.sort_inputs(services_, set, stream_->stream);
    multiply(operands.gemm(set));
    operands.unsort_result(services_, set, stream_->stream);
  }

  std::shared_ptr<const Kernel> kernel_of(Loaded& loaded, const Candidate& candidate) {
    const std::string key = text(candidate);
    const auto found = loaded.kernels.find(key);
    if (found != loaded.kernels.end()) return found->second;
    if (loaded.kernels.size() >= kMaxKernels) {
      loaded_->sampler->clear();
      loaded.kernels.clear();
    }
    return loaded.kernels.emplace(key, make_kernel_of(loaded, candidate)).first->second;
  }

  std::shared_ptr<const Kernel> make_kernel_of(const Loaded& loaded, const Candidate& candidate) {
    const Variant& variant = *candidate.variant;
    const Shape& shape = loaded.problem.shape;
    const Operands& operands = loaded.own.operands;
    if (variant.pack) return make_pack_kernel(*variant.pack, candidate, shape, operands, device_);
    const CompiledUnit& compiled = compiled_.get(variant.unit(candidate, shape));
    if (compiled.cubin.empty()) throw CandidateFault(compiled.result.status, compiled.result.reason);
    const LaunchPlan plan = variant.plan(candidate, shape);
    // At its largest size from the start: captured launches contain its address.
    if (plan.workspace > 0 && workspace_.size() == 0) workspace_ = DeviceBuffer(kMaxWorkspace);
    return make_kernel(compiled.cubin, plan, operands, services_, workspace_.as<float>(), device_);
  }

  DeviceInfo device_;
  CompilerOptions compiler_;
  Services services_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Cublas> cublas_;
  std::unique_ptr<CublasLt> cublaslt_;  // for operands with scales
  KeptUnits compiled_{compiler_, kMaxCompiled};
  DeviceBuffer workspace_;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int ordinal, const BackendOptions& options) {
  return std::make_unique<CudaBackend>(ordinal, options);
}

}  // namespace moetune
