// Opening a device by its word.
#include "backend/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/text/units.h"
#ifdef MOETUNE_HAS_CUDA
#include "backend/cuda/cuda_backend.h"
#endif

namespace moetune {
namespace {

constexpr std::string_view kArch = "arch:";

// The number of GPUs, or why there are none.
struct GpuCount {
  int count = 0;
  std::string reason;
};

GpuCount gpu_count() {
#ifdef MOETUNE_HAS_CUDA
  return {cuda_device_count(), cuda_unavailable_reason()};
#else
  return {0, "this build has no CUDA backend"};
#endif
}

#ifdef MOETUNE_HAS_CUDA
std::unique_ptr<Backend> open_cuda(int ordinal, const BackendOptions& options) {
  return make_cuda_backend(ordinal, options);
}
std::unique_ptr<Backend> open_arch(const std::string& architecture, const BackendOptions& options) {
  return make_arch_backend(architecture, options);
}
#else
Error no_cuda() {
  return machine_error("this build has no CUDA backend", "build it where CMake finds the CUDA toolkit");
}
std::unique_ptr<Backend> open_cuda(int, const BackendOptions&) { throw no_cuda(); }
std::unique_ptr<Backend> open_arch(const std::string&, const BackendOptions&) { throw no_cuda(); }
#endif

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options) {
  if (device == "cpu") return make_cpu_backend(options);
  if (device.starts_with(kArch)) return open_arch(device.substr(kArch.size()), options);
  const std::vector<std::string> gpus_elsewhere = gpu_words();
  if (std::ranges::find(gpus_elsewhere, device) != gpus_elsewhere.end()) return open_arch(device, options);
  const GpuCount gpus = gpu_count();
  if (device == "auto") return gpus.count > 0 ? open_cuda(0, options) : make_cpu_backend(options);
  if (device == "cuda:all")
    throw request_error("--device cuda:all is for tune: this command runs on one device", "name it, such as cuda:0");
  if (device == "gpu" || device.starts_with("gpu:"))
    throw request_error(fmt::format("unknown device '{}'", device),
                        fmt::format("did you mean 'cuda{}'?", device.substr(3)));
  if (device != "cuda" && !device.starts_with("cuda:"))
    throw unknown_word("device", device, {"auto", "cpu", "cuda", "cuda:0", "h200"});
  const auto ordinal =
      device == "cuda" ? 0 : static_cast<int>(parse_integer(device.substr(5), "--device cuda:N", 0, 1023));
  if (gpus.count == 0)
    throw machine_error(fmt::format("no CUDA device: {}", gpus.reason),
                        "run on the cpu with --device cpu, or see moetune doctor");
  if (ordinal >= gpus.count)
    throw machine_error(fmt::format("there is no device cuda:{}: this machine has {}", ordinal, gpus.count),
                        "see 'moetune list devices'");
  return open_cuda(ordinal, options);
}

std::vector<ListedDevice> list_devices() {
  std::vector<ListedDevice> devices;
#ifdef MOETUNE_HAS_CUDA
  for (int i = 0; i < gpu_count().count; ++i) devices.push_back({fmt::format("cuda:{}", i), cuda_device(i)});
#endif
  devices.push_back({"cpu", cpu_device()});
  return devices;
}

}  // namespace moetune
