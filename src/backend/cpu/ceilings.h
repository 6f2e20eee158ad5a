// What this machine can do at best: bandwidth, multiply-add rate, cost of a launch. Nothing of GEMM.
#pragma once
#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// Takes about three seconds.
Ceilings measure_ceilings(ThreadPool& pool, const DeviceInfo& device);

}  // namespace moetune
