// A device for tests that run nothing on it.
#pragma once
#include <algorithm>

#include "variant/device.h"
#include "workload/product/work.h"

namespace moetune {

/// With the SMs, the L2 and the peaks of an H200.
inline DeviceInfo h200() {
  DeviceInfo device = device_of_arch("sm_90a");
  device.processors = 132;
  device.cache_bytes = 62914560;
  device.peak_flops = 989e12;
  device.peak_bandwidth = 4.8e12;
  return device;
}

/// Seconds that no kernel on it is faster than.
inline double roofline(const Problem& problem) {
  const Product product = product_of(problem);
  return std::max(flops(product) / h200().peak_flops, bytes(product) / h200().peak_bandwidth);
}

}  // namespace moetune
