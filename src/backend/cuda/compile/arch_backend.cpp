// Compiling without a CUDA context.
#include "backend/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/kernel.h"
#include "base/error.h"

namespace moetune {
namespace {

class ArchBackend final : public Backend {
 public:
  ArchBackend(const std::string& architecture, const BackendOptions& options)
      : device_(device_of_arch(architecture)),
        compiler_{.arch = arch(device_),
                  .sources = kernel_sources(options.kernels_folder),
                  .cache = options.cache,
                  .threads = options.compile_threads} {}

  const DeviceInfo& device() const override { return device_; }
  Json environment() override {
    return {{"identity",
             {{"backend", "cuda"},
              {"device", device_.name},
              {"kernels", hash(compiler_.sources)},
              {"nvrtc", nvrtc_version()}}}};
  }
  std::vector<std::string> baselines() const override { return {}; }

  std::vector<CompileResult> compile(const Shape& shape, std::span<const Candidate> candidates) override {
    return compile_candidates(shape, candidates, device_, [&](const std::vector<std::string>& units) {
      return mapped(compile_units(units, compiler_), &CompiledUnit::result);
    });
  }

  void load(const Problem&) override { refuse(); }
  Verdict verify(const Contender&) override { refuse(); }
  Repetition repeat(const Contender&, double) override { refuse(); }
  std::vector<Block> sample(const Contender&, const SampleRequest&) override { refuse(); }
  Ceilings ceilings() override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    throw request_error(fmt::format("{} is planned and compiled for, but is not here to run kernels", device_.name),
                        "name a device that is here (see 'moetune list devices'), or add --dry-run");
  }

  DeviceInfo device_;
  CompilerOptions compiler_;
};

}  // namespace

std::unique_ptr<Backend> make_arch_backend(const std::string& architecture, const BackendOptions& options) {
  return std::make_unique<ArchBackend>(architecture, options);
}

}  // namespace moetune
