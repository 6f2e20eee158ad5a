// What GPUs are there and what they are.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cctype>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/libraries/runtime.h"

namespace moetune {
namespace {

// Dense bf16 FLOP/s and bytes/s from the vendor's datasheets; a name that isn't here has no roof.
struct Peak {
  std::string_view name;
  Roof roof;
};
constexpr Peak kPeaks[] = {
    {"H200", {989e12, 4.8e12}},
    {"GH200", {989e12, 4.0e12}},
    {"H100 NVL", {835e12, 3.9e12}},
    {"H100 PCIe", {756e12, 2.0e12}},
    {"H100", {989e12, 3.35e12}},
    {"H800", {989e12, 3.35e12}},
    {"H20", {148e12, 4.0e12}},
    {"A100-SXM4-80GB", {312e12, 2.039e12}},
    {"A100-SXM4-40GB", {312e12, 1.555e12}},
    {"A100", {312e12, 1.935e12}},
    {"A10G", {70e12, 0.6e12}},
    {"A10", {125e12, 0.6e12}},
    {"L40S", {362e12, 0.864e12}},
    {"L40", {181e12, 0.864e12}},
    {"L4", {121e12, 0.3e12}},
    {"B200", {2250e12, 8.0e12}},
    {"4090", {165e12, 1.008e12}},
    {"3090", {71e12, 0.936e12}},
};

// Whether `part` stands in `name` as whole words: an A1000 is no A100.
bool names(std::string_view name, std::string_view part) {
  const auto joins = [&](size_t at) { return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at])); };
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1))
    if ((at == 0 || !joins(at - 1)) && !joins(at + part.size())) return true;
  return false;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_unavailable_reason() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) return "no driver, or one older than this build's CUDA";
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count > 0 ? "" : "the driver sees no device";
}

DeviceInfo cuda_device(int ordinal) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, ordinal), "cannot read the device's properties");
  DeviceInfo device{.kind = DeviceKind::cuda,
                    .name = properties.name,
                    .id = uuid_text(properties.uuid),
                    .compute_capability = properties.major * 10 + properties.minor,
                    .processors = properties.multiProcessorCount,
                    .shared_memory_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
                    .shared_memory_per_sm = static_cast<int64_t>(properties.sharedMemPerMultiprocessor),
                    .registers_per_sm = properties.regsPerMultiprocessor,
                    .cache_bytes = properties.l2CacheSize,
                    .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
  const Roof roof = roof_of(device.name);
  device.peak_flops = roof.flops;
  device.peak_bandwidth = roof.bandwidth;
  return device;
}

Roof roof_of(std::string_view name) {
  for (const Peak& peak : kPeaks)
    if (names(name, peak.name)) return peak.roof;
  return {};
}

}  // namespace moetune
