// What this machine can do at best: bandwidth, multiply-add rate, cost of a launch. Nothing of GEMM.
#pragma once
#include "backend/backend.h"
#include "backend/cpu/microkernel.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// Floating-point operations a second of multiply-adds in registers, on all threads, for at least `seconds`: the best
/// interval of some milliseconds (burst) and the mean (sustained). This is the reachable fp32 peak.
struct FmaRate {
  double burst = 0;
  double sustained = 0;
  double noise = 0;  // relative half-width of the 95 % interval of an interval's median time
};
FmaRate fma_rate(const Microkernel& kernel, ThreadPool& pool, double seconds);

/// Takes about three seconds.
Ceilings measure_ceilings(const Microkernel& kernel, ThreadPool& pool, const DeviceInfo& device);

}  // namespace moetune
