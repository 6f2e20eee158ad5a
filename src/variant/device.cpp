// JSON of devices, and what is known of an architecture without one.
#include "variant/device.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"

namespace moetune {
namespace {

struct Architecture {
  std::string_view name;
  int compute_capability;
  int64_t shared_memory_per_block, shared_memory_per_sm;
};

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the opt-in maximum a block and the
// capacity of an SM.
constexpr int64_t kKilo = 1024;
constexpr Architecture kArchitectures[] = {
    {"sm_75", 75, 64 * kKilo, 64 * kKilo},      {"sm_80", 80, 163 * kKilo, 164 * kKilo},
    {"sm_86", 86, 99 * kKilo, 100 * kKilo},     {"sm_87", 87, 163 * kKilo, 164 * kKilo},
    {"sm_89", 89, 99 * kKilo, 100 * kKilo},     {"sm_90a", 90, 227 * kKilo, 228 * kKilo},
    {"sm_100a", 100, 227 * kKilo, 228 * kKilo}, {"sm_103a", 103, 227 * kKilo, 228 * kKilo},
    {"sm_120a", 120, 99 * kKilo, 100 * kKilo},
};

// What `moetune doctor` measures on an H200, as a share of the peaks of its data sheet.
constexpr MeasuredRates kReached = {.dense_flops = 785.7 / 989, .read_bandwidth = 4.482 / 4.8};

}  // namespace

Peaks modelled_peaks(const DeviceInfo& device) {
  if (device.measured == MeasuredRates{}) return {device.peak_flops, device.peak_bandwidth};
  return {device.measured.dense_flops / kReached.dense_flops, device.measured.read_bandwidth / kReached.read_bandwidth};
}

Json to_json(const MeasuredRates& rates) {
  return {{"dense_flops", rates.dense_flops}, {"read_bandwidth", rates.read_bandwidth}};
}

MeasuredRates rates_from_json(const JsonAt& json) {
  return {.dense_flops = json["dense_flops"].number(), .read_bandwidth = json["read_bandwidth"].number()};
}

Json to_json(const DeviceInfo& device) {
  Json json = {{"kind", device.kind == DeviceKind::cuda ? "cuda" : "cpu"},
               {"name", device.name},
               {"id", device.id},
               {"compute_capability", device.compute_capability},
               {"processors", device.processors},
               {"shared_memory_per_block", device.shared_memory_per_block},
               {"shared_memory_per_sm", device.shared_memory_per_sm},
               {"registers_per_sm", device.registers_per_sm},
               {"cache_bytes", device.cache_bytes},
               {"memory_bytes", device.memory_bytes},
               {"peak_flops", device.peak_flops},
               {"peak_bandwidth", device.peak_bandwidth}};
  if (device.measured != MeasuredRates{}) json["measured"] = to_json(device.measured);
  return json;
}

DeviceInfo device_from_json(const JsonAt& json) {
  const std::string kind = json["kind"].string();
  return {.kind = kind == "cuda" ? DeviceKind::cuda : DeviceKind::cpu,
          .name = json["name"].string(),
          .id = json["id"].string(),
          .compute_capability = static_cast<int>(json["compute_capability"].integer(0, 10000)),
          .processors = static_cast<int>(json["processors"].integer(0, 1 << 24)),
          .shared_memory_per_block = json["shared_memory_per_block"].integer(0),
          .shared_memory_per_sm = json["shared_memory_per_sm"].integer(0),
          .registers_per_sm = json["registers_per_sm"].integer(0),
          .cache_bytes = json["cache_bytes"].integer(0),
          .memory_bytes = json["memory_bytes"].integer(0),
          .peak_flops = json["peak_flops"].number(),
          .peak_bandwidth = json["peak_bandwidth"].number(),
          .measured = json.has("measured") ? rates_from_json(json["measured"]) : MeasuredRates{}};
}

DeviceInfo device_of_arch(const std::string& arch) {
  std::vector<std::string> names;
  for (const Architecture& known : kArchitectures) {
    if (known.name == arch || fmt::format("sm_{}", known.compute_capability) == arch)
      return {.kind = DeviceKind::cuda,
              .name = std::string(known.name),
              .id = {},
              .compute_capability = known.compute_capability,
              .processors = 0,
              .shared_memory_per_block = known.shared_memory_per_block,
              .shared_memory_per_sm = known.shared_memory_per_sm,
              .registers_per_sm = 65536};
    names.emplace_back(known.name);
  }
  throw unknown_word("architecture", arch, names);
}

std::string arch(const DeviceInfo& device) {
  // The "a" targets have what only that generation has: wgmma on sm_90a, for one.
  return fmt::format("sm_{}{}", device.compute_capability, device.compute_capability >= 90 ? "a" : "");
}

}  // namespace moetune
