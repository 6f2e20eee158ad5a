// The cpu of this machine: what it is, what runs candidates there, and how much of it others use.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "variant/device.h"

namespace moetune {

/// This machine's cpu. processors: hardware threads that this process may use. cache_bytes: all last-level caches of
/// those threads. memory_bytes: of the machine, or of the control group where that is less.
DeviceInfo cpu_device();

/// Runs the cpu variant and the baseline "loop" on this machine.
std::unique_ptr<Backend> make_cpu_backend();

/// Memory that can still be had without swapping, within the limit of the control group.
int64_t available_memory_bytes();

/// Seconds, in all, that the living threads of this process have been ready to run without a processor.
/// 0 where the system doesn't report it.
double seconds_without_processor();

/// The load by others since its construction. It slows our threads down even where they never wait: caches and memory
/// are shared.
class OtherLoad {
 public:
  OtherLoad();

  /// The share of its processors' time that others used in the last quarter of a second or longer; 0 before that, and
  /// where the system doesn't report it. The system counts in hundredths of a second, so a single share is coarse; the
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
