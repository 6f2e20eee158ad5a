// The CUDA backend: NVRTC kernels, cuBLAS references, graph-timed blocks. Only the worker process opens it. And one
// without a device, which compiles for an architecture and runs nothing.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace moetune {

/// How many GPUs there are; 0 with no driver or no device.
int cuda_device_count();

/// Why there are none, as the driver says it; "" where there are some.
std::string cuda_unavailable_reason();

/// Properties of a GPU that is there.
DeviceInfo cuda_device(int ordinal);

std::unique_ptr<Backend> make_cuda_backend(int ordinal, const BackendOptions& options);

/// Compiles for `architecture` ("sm_90a"). Only device, environment, baselines and compile answer; the other calls
/// throw Exit::request. Kernels are not kept in memory: their use is to fill the cache on disk.
std::unique_ptr<Backend> make_arch_backend(const std::string& architecture, const BackendOptions& options);

/// What NVML reports about a GPU; without it the figures are missing and nothing else.
struct GpuState {
  std::string driver;            // "580.95", "" = unknown
  double power_limit_watts = 0;  // 0 = unknown
  double max_clock_mhz = 0;
};

GpuState gpu_state(const std::string& uuid);  // "GPU-..."

}  // namespace moetune
