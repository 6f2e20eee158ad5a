// What this machine is, what it can do at best, and how much of it others use. Nothing of GEMM.
#pragma once
#include <chrono>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"
#include "variant/device.h"

namespace moetune {

/// This machine's cpu. processors: hardware threads that this process may use. cache_bytes: all last-level caches of
/// those threads. memory_bytes: of the machine, or of the control group where that is less.
DeviceInfo cpu_device();

/// Memory that can still be had without swapping, within the limit of the control group.
int64_t available_memory_bytes();

/// The rate of multiply-adds in the first-level cache, and how much its times scatter. Takes half a second.
Ceilings measure_ceilings(ThreadPool& pool);

/// Seconds, in all, that the living threads of this process have been ready to run without a processor.
/// 0 where the system doesn't tell.
double seconds_without_processor();

/// The load by others since its construction. It slows our threads down even where they never wait: caches and memory
/// are shared.
class OtherLoad {
 public:
  OtherLoad();

  /// The share of its processors' time that others used in the last quarter of a second or longer; 0 before that, and
  /// where the system doesn't tell. The system counts in hundredths of a second, so a single share is coarse; the
  /// mean of many is not.
  double share();

 private:
  struct Reading {
    std::chrono::steady_clock::time_point when;
    double processors = 0;  // that were read
    double idle = 0;        // seconds, of all of them
    double own = 0;         // seconds that this process had them
  };
  static Reading read();

  Reading last_;
  double share_ = 0;
};

}  // namespace moetune
