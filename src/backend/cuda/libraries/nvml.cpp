// The few NVML calls we need. Declarations are our own: a minimal toolkit lacks its header.
#include "backend/cuda/libraries/nvml.h"

#include <dlfcn.h>

#include <array>

namespace moetune {
namespace {

using Handle = void*;

template <class... Arguments>
bool call(void* library, const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
  return function && function(arguments...) == 0;
}

}  // namespace

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
