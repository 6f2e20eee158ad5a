// What the operating system says of this machine's processors, caches and memory.
#pragma once
#include <cstdint>

#include "variant/device.h"

namespace moetune {

/// This machine's cpu. processors: hardware threads that this process may use. cache_bytes: all last-level caches of
/// those threads. memory_bytes: of the machine, or of the control group where that is less.
DeviceInfo cpu_device();

/// Memory that can still be had without swapping, within the limit of the control group.
int64_t available_memory_bytes();

}  // namespace moetune
