// NVML, opened at run time; without it the figures are missing and nothing else.
#pragma once
#include <string>

namespace moetune {

struct GpuState {
  std::string driver;            // "580.95", "" = unknown
  double power_limit_watts = 0;  // 0 = unknown
  double max_clock_mhz = 0;
};

/// Of the GPU with that UUID ("GPU-...").
GpuState gpu_state(const std::string& uuid);

}  // namespace moetune
