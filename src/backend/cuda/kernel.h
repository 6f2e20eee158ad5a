// A compiled kernel on the device, ready to launch; and the small kernels around it.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>

#include "backend/cuda/libraries/runtime.h"
#include "kernels/args.h"
#include "variant/variant.h"

namespace moetune {

/// A loaded cubin; unloaded with the object.
class Module {
 public:
  explicit Module(const std::string& cubin);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// The handle that launches take. Throws CandidateFault{launch_error} where there is no such kernel.
  const void* kernel(const char* name) const;

 private:
  cudaLibrary_t library_ = nullptr;
};

/// A candidate's kernel with its launch settings on this device.
struct Kernel {
  std::shared_ptr<Module> module;
  const void* function = nullptr;
  LaunchPlan plan;
  int blocks = 0;                           // that the device can run at once
  std::shared_ptr<DeviceBuffer> maps = {};  // room for the tensor maps of all blocks, where the plan asks for it

  /// On so many blocks, at most `blocks`, in whole clusters.
  void launch(const Args& args, int64_t grid, cudaStream_t stream) const;
};
/// Allows a kernel the plan's shared memory, and returns how many of its blocks the device can run at once. Throws
/// CandidateFault{launch_error} where not even one fits.
int held_blocks(const void* function, const LaunchPlan& plan, const DeviceInfo& device);

Kernel make_kernel(const std::shared_ptr<Module>& module, const LaunchPlan& plan, const DeviceInfo& device);

/// Launches any kernel with arguments by address.
template <class... Arguments>
void launch(const void* function, unsigned blocks, unsigned threads, cudaStream_t stream, Arguments... arguments);

/// Throws as require() does; used by the template.
void launch_checked(const void* function, unsigned blocks, unsigned threads, void** arguments, cudaStream_t stream);

template <class... Arguments>
void launch(const void* function, unsigned blocks, unsigned threads, cudaStream_t stream, Arguments... arguments) {
  std::array<void*, sizeof...(Arguments)> addresses = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  launch_checked(function, blocks, threads, addresses.data(), stream);
}

}  // namespace moetune
