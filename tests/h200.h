// A device for tests that run nothing on it.
#pragma once
#include "variant/device.h"

namespace moetune {

/// With the SMs and the peaks of an H200.
inline DeviceInfo h200() {
  DeviceInfo device = device_of_arch("sm_90a");
  device.processors = 132;
  device.peak_flops = 989e12;
  device.peak_bandwidth = 4.8e12;
  return device;
}

}  // namespace moetune
