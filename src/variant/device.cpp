// JSON of devices, and what is known of an architecture without one.
#include "variant/device.h"

#include <fmt/format.h>

#include <cctype>
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
    {"sm_120a", 120, 99 * kKilo, 100 * kKilo},  {"sm_121a", 121, 99 * kKilo, 100 * kKilo},
};

// GPUs that plans can be made for where they are not: SMs, and bytes of L2 and memory as the driver reports them.
struct NamedGpu {
  std::string_view word, name, arch;
  int processors;
  int64_t cache_bytes, memory_bytes;
};
constexpr NamedGpu kGpus[] = {
    {"h200", "NVIDIA H200", "sm_90a", 132, 60 * kKilo* kKilo, 150'000'000'000},
    {"h100", "NVIDIA H100 80GB HBM3", "sm_90a", 132, 50 * kKilo* kKilo, 85'000'000'000},
    {"h20", "NVIDIA H20", "sm_90a", 78, 60 * kKilo* kKilo, 102'000'000'000},
    {"h20-3e", "NVIDIA H20-3e", "sm_90a", 78, 60 * kKilo* kKilo, 150'000'000'000},
    {"h800", "NVIDIA H800", "sm_90a", 132, 50 * kKilo* kKilo, 85'000'000'000},
    {"gh200", "NVIDIA GH200 480GB", "sm_90a", 132, 60 * kKilo* kKilo, 102'000'000'000},
    {"b200", "NVIDIA B200", "sm_100a", 148, 126 * kKilo* kKilo, 190'000'000'000},
    {"gb200", "NVIDIA GB200", "sm_100a", 152, 126 * kKilo* kKilo, 198'000'000'000},
    {"b300", "NVIDIA B300 SXM6 AC", "sm_103a", 148, 126 * kKilo* kKilo, 288'000'000'000},
    {"a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 40 * kKilo* kKilo, 85'000'000'000},
    {"a30", "NVIDIA A30", "sm_80", 56, 24 * kKilo* kKilo, 25'000'000'000},
    {"l40s", "NVIDIA L40S", "sm_89", 142, 96 * kKilo* kKilo, 47'000'000'000},
    {"l20", "NVIDIA L20", "sm_89", 92, 96 * kKilo* kKilo, 48'000'000'000},
    {"l4", "NVIDIA L4", "sm_89", 58, 48 * kKilo* kKilo, 23'000'000'000},
    {"rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 6 * kKilo* kKilo, 25'000'000'000},
    {"rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 72 * kKilo* kKilo, 25'000'000'000},
    {"rtx5090", "NVIDIA GeForce RTX 5090", "sm_120a", 170, 96 * kKilo* kKilo, 33'000'000'000},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120a", 188, 128 * kKilo* kKilo,
     102'000'000'000},
};

// Dense bf16 FLOP/s and bytes/s from the vendor's datasheets; a name that isn't here has no roof.
struct DataSheet {
  std::string_view name;
  Peaks peaks;
};
constexpr DataSheet kDataSheets[] = {
    {"H200", {989e12, 4.8e12}},
    {"GH200", {989e12, 4.0e12}},
    {"H100 NVL", {835e12, 3.9e12}},
    {"H100 PCIe", {756e12, 2.0e12}},
    {"H100", {989e12, 3.35e12}},
    {"H800", {989e12, 3.35e12}},
    {"H20-3e", {148e12, 4.8e12}},
    {"H20", {148e12, 4.0e12}},
    {"A100-SXM4-80GB", {312e12, 2.039e12}},
    {"A100-SXM4-40GB", {312e12, 1.555e12}},
    {"A100", {312e12, 1.935e12}},
    {"A30", {165e12, 0.933e12}},
    {"A10G", {70e12, 0.6e12}},
    {"A10", {125e12, 0.6e12}},
    {"L40S", {362e12, 0.864e12}},
    {"L40", {181e12, 0.864e12}},
    {"L20", {119.5e12, 0.864e12}},
    {"L4", {121e12, 0.3e12}},
    {"GB200", {2500e12, 8.0e12}},
    {"B200", {2250e12, 8.0e12}},
    {"B300", {2250e12, 8.0e12}},
    {"RTX PRO 6000", {503e12, 1.6e12}},
    {"5090", {209e12, 1.792e12}},
    {"4090", {165e12, 1.008e12}},
    {"3090", {71e12, 0.936e12}},
};

// Whether `part` stands in `name` as whole words: an A1000 is no A100.
bool names(std::string_view name, std::string_view part) {
  const auto is_word = [&](size_t at) {
    return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at]));
  };
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1))
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + part.size())) return true;
  return false;
}

}  // namespace

Json to_json(const DeviceInfo& device) {
  return {{"kind", device.kind == DeviceKind::cuda ? "cuda" : "cpu"},
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
          .peak_bandwidth = json["peak_bandwidth"].number()};
}

Peaks peaks_of(std::string_view name) {
  for (const DataSheet& sheet : kDataSheets)
    if (names(name, sheet.name)) return sheet.peaks;
  return {};
}

std::vector<std::string> gpu_words() { return mapped<std::string>(kGpus, &NamedGpu::word); }

DeviceInfo device_of_arch(const std::string& arch) {
  for (const NamedGpu& gpu : kGpus) {
    if (gpu.word != arch) continue;
    DeviceInfo device = device_of_arch(std::string(gpu.arch));
    device.name = gpu.name, device.processors = gpu.processors;
    device.cache_bytes = gpu.cache_bytes, device.memory_bytes = gpu.memory_bytes;
    device.peak_flops = peaks_of(gpu.name).flops, device.peak_bandwidth = peaks_of(gpu.name).bandwidth;
    return device;
  }
  if (const size_t at = arch.rfind('@'); at != std::string::npos && at > 0) {
    DeviceInfo device = device_of_arch(arch.substr(at + 1));
    device.name = arch.substr(0, at);
    device.peak_flops = peaks_of(device.name).flops, device.peak_bandwidth = peaks_of(device.name).bandwidth;
    return device;
  }
  std::vector<std::string> words;
  for (const Architecture& known : kArchitectures) {
    if (known.name == arch || fmt::format("sm_{}", known.compute_capability) == arch)
      return {.kind = DeviceKind::cuda,
              .name = std::string(known.name),
              .compute_capability = known.compute_capability,
              .shared_memory_per_block = known.shared_memory_per_block,
              .shared_memory_per_sm = known.shared_memory_per_sm,
              .registers_per_sm = 65536};
    words.emplace_back(known.name);
  }
  for (std::string& word : gpu_words()) words.push_back(std::move(word));
  throw request_error(fmt::format("unknown architecture '{}'", arch),
                      fmt::format("one of: {}", fmt::join(words, ", ")));
}

std::string arch(const DeviceInfo& device) {
  // The "a" targets have what only that generation has: wgmma on sm_90a, for one.
  return fmt::format("sm_{}{}", device.compute_capability, device.compute_capability >= 90 ? "a" : "");
}

}  // namespace moetune
