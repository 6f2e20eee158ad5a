// The Backend of one GPU: puts compiler, operands, verifier and sampler together.
#include "backend/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

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
constexpr size_t kMaxKernels = 64;    // loaded at once
constexpr size_t kMaxCompiled = 256;  // kept in memory; the cache on disk has the others

// What belongs to the loaded problem; destroyed with it, in reverse order.
struct Loaded {
  Shape shape;
  Operands operands;
  std::optional<Verifier> verifier;
  std::vector<DeviceBuffer> grouped_pointers;                    // a set
  std::map<std::string, std::shared_ptr<const Kernel>> kernels;  // by candidate text
  std::optional<Sampler> sampler;
};

class CudaBackend : public Backend {
 public:
  CudaBackend(int ordinal, const BackendOptions& options)
      : device_(
            (require(cudaSetDevice(ordinal), "cannot use the device"), measured_device(cuda_device(ordinal), options))),
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

  std::vector<std::string> baselines() const override { return {kLoop, kGrouped}; }

  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    return compile_candidates(shape, candidates, device_,
                              [&](const std::vector<std::string>& units) { return compiled_.compile(units); });
  }

  void load(const Problem& problem) override {
    loaded_.reset();
    auto loaded = std::make_unique<Loaded>();
    loaded->shape = problem.shape;
    loaded->operands = make_operands(product_of(problem), device_, services_, stream_->stream);
    loaded->sampler.emplace(*stream_, services_.of(loaded->operands.product.d.type.dtype), device_.processors);
    require(cudaStreamSynchronize(stream_->stream), "cannot fill the operands");
    loaded_ = std::move(loaded);
  }

  Verdict verify(const Contender& contender) override {
    const Verifier& verifier = need_verifier();
    const Enqueue enqueue = enqueue_of(contender);
    const Kernel* kernel = contender.baseline.empty() ? kernel_of(contender.candidate).get() : nullptr;
    if (kernel) kernel->clear(stream_->stream);
    const Product& product = loaded_->operands.product;
    const bool of_cublas_16 = !kernel && (product.accumulates || is_finished(product)) &&
                              loaded_->operands.plain.d.type.dtype != Dtype::fp32;
    std::optional<Weighting> weighting;  // a pack's own; others follow the product
    if (const Pack* pack = kernel ? contender.candidate.variant->pack.get() : nullptr)
      weighting = weighting_of(*pack, loaded_->shape);
    Verdict verdict = verifier.verify([&] { enqueue(0); }, of_cublas_16, weighting);
    if (const std::string left = kernel ? kernel->left_nonzero() : ""; verdict.ok && !left.empty()) {
      verdict.ok = false;
      verdict.reason = fmt::format("the kernel left '{}' not zero, but the next launch needs zeros", left);
    }
    return verdict;
  }

  Repetition repeat(const Contender& contender, double seconds) override {
    const Verifier& verifier = need_verifier();
    const Enqueue enqueue = enqueue_of(contender);
    return verifier.repeat([&] { enqueue(0); }, seconds);
  }

  void make_references() override { need_verifier(); }

  std::vector<Block> sample(const Contender& contender, const SampleRequest& request) override {
    Loaded& loaded = need_problem();
    return loaded.sampler->sample(text(contender), enqueue_of(contender), loaded.operands.sets, request);
  }

  Ceilings ceilings() override {
    loaded_.reset();
    return measure_ceilings(services_.of(Dtype::bf16), *cublas_, *stream_, device_.processors);
  }

 private:
  Loaded& need_problem() {
    if (!loaded_) throw Error(Exit::bug, "no problem is loaded");
    return *loaded_;
  }

  const Verifier& need_verifier() {
    Loaded& loaded = need_problem();
    if (!loaded.verifier) loaded.verifier.emplace(loaded.operands, services_, *cublas_, *stream_);
    return *loaded.verifier;
  }

  Enqueue enqueue_of(const Contender& contender) {
    Loaded& loaded = *loaded_;
    const OperandType& weights = loaded.operands.product.b.type;
    if (contender.baseline == kLoop && has_scales(weights) && weights.dtype != Dtype::fp8)
      throw CandidateFault(Status::illegal, fmt::format("cuBLAS is not a baseline for {}", name(weights.dtype)));
    if (contender.baseline == kLoop && has_scales(weights)) {
      if (!cublaslt_) cublaslt_ = std::make_unique<CublasLt>(stream_->stream);
      return [&](int set) {
        run_baseline(set, [&](const GroupedGemm&) { cublaslt_->loop(loaded_->operands.scaled_gemm(set)); });
      };
    }
    if (contender.baseline == kLoop)
      return [&](int set) { run_baseline(set, [&](const GroupedGemm& gemm) { cublas_->loop(gemm, false); }); };
    if (contender.baseline == kGrouped) {
      if (has_scales(weights))
        throw CandidateFault(Status::illegal, "cuBLAS has no grouped GEMM of operands with scales");
      if (!has_grouped_gemm(loaded.operands.plain))
        throw CandidateFault(Status::illegal,
                             fmt::format("cuBLAS has no grouped GEMM for the operands of {}", name(loaded.shape.op)));
      while (static_cast<int>(loaded.grouped_pointers.size()) < loaded.operands.sets)
        loaded.grouped_pointers.push_back(
            Cublas::grouped_pointers(loaded.operands.gemm(static_cast<int>(loaded.grouped_pointers.size()))));
      return [&](int set) {
        run_baseline(set, [&](const GroupedGemm& gemm) {
          cublas_->grouped(gemm, loaded.grouped_pointers[static_cast<size_t>(set)]);
        });
      };
    }
    if (!contender.baseline.empty()) throw unknown_word("baseline", contender.baseline, baselines());
    return [kernel = kernel_of(contender.candidate), this](int set) { kernel->enqueue(set, stream_->stream); };
  }

  // Without a fused kernel rows are moved and weighted before and after: that is part of the baseline's time.
  void run_baseline(int set, const std::function<void(const GroupedGemm&)>& multiply) {
    const Operands& operands = loaded_->operands;
    operands.sort_inputs(services_, set, stream_->stream);
    multiply(operands.gemm(set));
    operands.unsort_result(services_, set, stream_->stream);
  }

  std::shared_ptr<const Kernel> kernel_of(const Candidate& candidate) {
    const std::string key = text(candidate);
    const auto found = loaded_->kernels.find(key);
    if (found != loaded_->kernels.end()) return found->second;
    if (loaded_->kernels.size() >= kMaxKernels) {
      loaded_->sampler->clear();
      loaded_->kernels.clear();
    }
    return loaded_->kernels.emplace(key, make_kernel_of(candidate)).first->second;
  }

  std::shared_ptr<const Kernel> make_kernel_of(const Candidate& candidate) {
    const Variant& variant = *candidate.variant;
    const Operands& operands = loaded_->operands;
    if (variant.pack) return make_pack_kernel(*variant.pack, candidate, loaded_->shape, operands, device_);
    const CompiledUnit& compiled = compiled_.get(variant.unit(candidate, loaded_->shape));
    if (compiled.cubin.empty()) throw CandidateFault(compiled.result.status, compiled.result.reason);
    const LaunchPlan plan = variant.plan(candidate, loaded_->shape);
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
