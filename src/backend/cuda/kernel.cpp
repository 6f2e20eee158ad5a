// Loading and launching.
#include "backend/cuda/kernel.h"

#include <algorithm>

#include "backend/backend.h"
#include "backend/cuda/runtime.h"

namespace moetune {

Module::Module(const std::string& cubin) {
  require_candidate(cudaLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                    "cannot load the kernel");
}

Module::~Module() {
  if (library_) cudaLibraryUnload(library_);
}

const void* Module::kernel(const char* name) const {
  cudaKernel_t kernel = nullptr;
  require_candidate(cudaLibraryGetKernel(&kernel, library_, name), "cannot find the kernel");
  return reinterpret_cast<const void*>(kernel);
}

Kernel make_kernel(std::shared_ptr<Module> module, const LaunchPlan& plan, const DeviceInfo& device) {
  Kernel kernel{.module = module, .function = module->kernel("moetune_kernel"), .plan = plan};
  require_candidate(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(plan.shared_bytes)),
                    "cannot set the kernel's shared memory");
  int per_sm = 0;
  require_candidate(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kernel.function, plan.threads,
                                                                  static_cast<size_t>(plan.shared_bytes)),
                    "cannot tell the kernel's occupancy");
  if (per_sm == 0) throw CandidateFault(Status::launch_error, "not one block of the kernel fits on an SM");
  kernel.blocks = per_sm * device.processors;
  return kernel;
}

void Kernel::launch(const Args& args, int64_t tiles_at_most, cudaStream_t stream) const {
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(tiles_at_most, 1, blocks));
  Args copy = args;
  void* arguments[] = {&copy};
  require_candidate(cudaLaunchKernel(function, dim3(grid), dim3(static_cast<unsigned>(plan.threads)), arguments,
                                     static_cast<size_t>(plan.shared_bytes), stream),
                    "cannot launch the kernel");
}

void launch_checked(const void* function, unsigned blocks, unsigned threads, void** arguments, cudaStream_t stream) {
  require(cudaLaunchKernel(function, dim3(blocks), dim3(threads), arguments, 0, stream),
          "cannot launch a service kernel");
}

}  // namespace moetune
