// Loading and launching.
#include "backend/cuda/kernel.h"

#include <algorithm>

#include "backend/backend.h"
#include "backend/cuda/libraries/runtime.h"

namespace moetune {

namespace {

// Blocks in clusters that run at once. A GPC with an odd number of SMs leaves one unused.
int clustered_blocks(const void* function, const LaunchPlan& plan) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.cluster));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  require_candidate(cudaOccupancyMaxActiveClusters(&clusters, function, &config),
                    "cannot tell how many clusters the device can run");
  if (clusters == 0) throw CandidateFault(Status::launch_error, "no cluster of the kernel fits on the device");
  return clusters * plan.cluster;
}

}  // namespace

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

int held_blocks(const void* function, const LaunchPlan& plan, const DeviceInfo& device) {
  require_candidate(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes)),
      "cannot set the kernel's shared memory");
  int per_sm = 0;
  require_candidate(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, function, plan.threads,
                                                                  static_cast<size_t>(plan.shared_bytes)),
                    "cannot tell the kernel's occupancy");
  if (per_sm == 0) throw CandidateFault(Status::launch_error, "no block of the kernel fits on an SM");
  if (plan.workspace > 0) per_sm = std::min(per_sm, plan.min_blocks_per_sm);  // more have no workspace
  return plan.cluster == 1 ? per_sm * device.processors : clustered_blocks(function, plan);
}

Kernel make_kernel(const std::shared_ptr<Module>& module, const LaunchPlan& plan, const DeviceInfo& device) {
  Kernel kernel{.module = module, .function = module->kernel("moetune_kernel"), .plan = plan};
  kernel.blocks = held_blocks(kernel.function, plan, device);
  if (plan.maps > 0)
    kernel.maps = std::make_shared<DeviceBuffer>(int64_t{kernel.blocks} * plan.maps * int64_t{sizeof(TensorMap)});
  return kernel;
}

void Kernel::launch(const Args& args, int64_t grid, cudaStream_t stream) const {
  Args copy = args;
  if (maps) copy.maps = maps->as<TensorMap>();
  void* arguments[] = {&copy};
  require_candidate(
      cudaLaunchKernel(function, dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(plan.threads)),
                       arguments, static_cast<size_t>(plan.shared_bytes), stream),
      "cannot launch the kernel");
}

void launch_checked(const void* function, unsigned blocks, unsigned threads, void** arguments, cudaStream_t stream) {
  require(cudaLaunchKernel(function, dim3(blocks), dim3(threads), arguments, 0, stream),
          "cannot launch a service kernel");
}

}  // namespace moetune
