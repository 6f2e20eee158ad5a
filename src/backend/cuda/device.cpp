// The GPUs of the machine, their properties, and NVML, which is opened at run time. Declarations of its few calls
// are our own: a minimal toolkit lacks its header.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/libraries/runtime.h"

namespace moetune {
namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

using Handle = void*;

template <class... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
  return function && function(arguments...) == 0;
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_unavailable_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (int driver = 0; error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess)
    return driver == 0
               ? "there is no NVIDIA driver (install it; containers need --gpus all)"
               : fmt::format("the driver is for CUDA {}, which is too old for this build: update it", driver / 1000);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count > 0 ? "" : "the driver sees no device";
}

DeviceInfo cuda_device(int ordinal) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, ordinal), "cannot read the device's properties");
  DeviceInfo device{.kind = DeviceKind::cuda,
                    .name = properties.name,
                    .id = uuid_text(properties.uuid),
                    .compute_capability = properties.major * 10 + properties.minor,
                    .processors = properties.multiProcessorCount,
                    .shared_memory_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
                    .shared_memory_per_sm = static_cast<int64_t>(properties.sharedMemPerMultiprocessor),
                    .registers_per_sm = properties.regsPerMultiprocessor,
                    .cache_bytes = properties.l2CacheSize,
                    .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
  const Peaks peaks = peaks_of(device.name);
  device.peak_flops = peaks.flops, device.peak_bandwidth = peaks.bandwidth;
  return device;
}

GpuState gpu_state(const std::string& uuid) {
  GpuState state;
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library || !call(library, "nvmlInit_v2")) return state;
  std::array<char, 96> text{};
  if (call(library, "nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size())))
    state.driver = text.data();
  Handle device = nullptr;
  if (!call(library, "nvmlDeviceGetHandleByUUID", uuid.c_str(), &device)) return state;
  unsigned value = 0;
  if (call(library, "nvmlDeviceGetEnforcedPowerLimit", device, &value)) state.power_limit_watts = value * 1e-3;
  constexpr int kSmClock = 1;
  if (call(library, "nvmlDeviceGetMaxClockInfo", device, kSmClock, &value)) state.max_clock_mhz = value;
  return state;
}

}  // namespace moetune
