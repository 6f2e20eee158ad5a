// The few NVML calls we need. Declarations are our own: a minimal toolkit lacks its header.
#include "backend/cuda/libraries/nvml.h"

#include <dlfcn.h>

#include <array>

namespace moetune {
namespace {

using Handle = void*;

// From NVML's API reference: clock events reasons.
constexpr std::array<std::pair<unsigned long long, const char*>, 6> kReasons = {{{0x4, "software power cap"},
                                                                                 {0x8, "hardware slowdown"},
                                                                                 {0x20, "software thermal slowdown"},
                                                                                 {0x40, "hardware thermal slowdown"},
                                                                                 {0x80, "hardware power brake"},
                                                                                 {0x10, "sync boost"}}};

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
  if (call(library, "nvmlDeviceGetPowerUsage", device, &value)) state.power_watts = value * 1e-3;
  if (call(library, "nvmlDeviceGetEnforcedPowerLimit", device, &value)) state.power_limit_watts = value * 1e-3;
  constexpr int kSmClock = 1, kCore = 0;
  if (call(library, "nvmlDeviceGetMaxClockInfo", device, kSmClock, &value)) state.max_clock_mhz = value;
  if (call(library, "nvmlDeviceGetTemperature", device, kCore, &value)) state.temperature = value;
  unsigned long long reasons = 0;
  if (call(library, "nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons))
    for (const auto& [bit, reason] : kReasons)
      if (reasons & bit) state.throttle += (state.throttle.empty() ? "" : ", ") + std::string(reason);
  return state;
}

}  // namespace moetune
