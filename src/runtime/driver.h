// The functions of the CUDA driver that launches need, found at run time: programs that link libmoetune.so need no
// libcuda to be built.
#pragma once
#include <cuda.h>

#include <string>

// clang-format off
#define MOETUNE_DRIVER_FUNCTIONS(of)                                                                                   \
  of(cuInit) of(cuDriverGetVersion) of(cuGetErrorString) of(cuCtxGetCurrent) of(cuCtxPushCurrent) of(cuCtxPopCurrent)  \
  of(cuCtxGetDevice) of(cuCtxSynchronize) of(cuDevicePrimaryCtxRetain) of(cuDeviceGetName) of(cuDeviceGetAttribute)    \
  of(cuModuleLoadData) of(cuModuleUnload) of(cuModuleGetFunction) of(cuFuncSetAttribute)                               \
  of(cuOccupancyMaxActiveBlocksPerMultiprocessor) of(cuOccupancyMaxActiveClusters) of(cuMemAlloc) of(cuMemFree)        \
  of(cuMemsetD8) of(cuMemsetD8Async) of(cuTensorMapEncodeTiled) of(cuLaunchKernelEx)
// clang-format on

namespace moetune {

struct Driver {
#define MOETUNE_MEMBER(function) decltype(&::function) function = nullptr;
  MOETUNE_DRIVER_FUNCTIONS(MOETUNE_MEMBER)
#undef MOETUNE_MEMBER
};

/// Loads libcuda.so.1 at the first call. Throws Exit::machine if there is none, or one older than CUDA 12.
const Driver& driver();

/// Throws Exit::machine with `what` and the driver's words for a result that is not success.
void require(CUresult result, const std::string& what);

/// Makes a context current while it lives.
class CurrentContext {
 public:
  explicit CurrentContext(CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace moetune
