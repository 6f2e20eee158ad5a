// What legality and launches must know of a device. Not how it is driven.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moetune {

enum class DeviceKind { cpu, cuda };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name = {};                // "NVIDIA H200", "AMD EPYC ..."
  std::string id = {};                  // GPU UUID, or "cpu"
  int compute_capability = 0;           // 90; 0 for a cpu
  int processors = 0;                   // SMs, or hardware threads
  int64_t shared_memory_per_block = 0;  // bytes, the opt-in maximum
  int64_t shared_memory_per_sm = 0;
  int64_t registers_per_sm = 0;
  int64_t cache_bytes = 0;  // L2, or the last-level cache of a cpu
  int64_t memory_bytes = 0;
  double peak_flops = 0;      // dense, of bf16 on a GPU; 0 = unknown
  double peak_bandwidth = 0;  // bytes a second; 0 = unknown

  bool operator==(const DeviceInfo&) const = default;
};

struct Peaks {
  double flops = 0, bandwidth = 0;  // FLOP and bytes a second; 0 = unknown
};

Json to_json(const DeviceInfo& device);
DeviceInfo device_from_json(const JsonAt& json);

/// What the vendor's data sheet gives for a GPU of this name: dense bf16 FLOP/s; zeros for a name that isn't known.
Peaks peaks_of(std::string_view name);

/// The words of GPUs that device_of_arch knows: "h200".
std::vector<std::string> gpu_words();

/// A device that is not here, by its architecture ("sm_80", "sm_90a"), its name ("h200") or any name as the driver
/// gives it and its architecture ("NVIDIA H20@sm_90a"): for plans and for compiling without a GPU. Of an architecture
/// alone, SMs, caches and peaks are not known. Errors: unknown word.
DeviceInfo device_of_arch(const std::string& arch);

/// The target to compile for: "sm_90a" for compute capability 90, "sm_80" for 80, ...
std::string arch(const DeviceInfo& device);

}  // namespace moetune
