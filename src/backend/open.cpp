// Opening a device by its word.
#include "backend/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cpu/machine.h"
#include "base/error.h"
#include "base/text/units.h"
#ifdef MOETUNE_HAS_CUDA
#include "backend/cuda/cuda_backend.h"
#endif

namespace moetune {
namespace {

constexpr std::string_view kArch = "arch:";

#ifndef MOETUNE_HAS_CUDA
Error no_cuda() {
  return machine_error("this build has no CUDA backend", "build it where CMake finds the CUDA toolkit");
}
int cuda_device_count() { return 0; }
std::string cuda_unavailable_reason() { return no_cuda().what(); }
DeviceInfo cuda_device(int) { throw no_cuda(); }
std::unique_ptr<Backend> make_cuda_backend(int, const BackendOptions&) { throw no_cuda(); }
std::unique_ptr<Backend> make_arch_backend(const std::string&, const BackendOptions&) { throw no_cuda(); }
#endif

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options) {
  if (device == "cpu") return make_cpu_backend();
  if (device.starts_with(kArch)) return make_arch_backend(device.substr(kArch.size()), options);
  std::vector<std::string> words = gpu_words();  // of GPUs elsewhere
  if (contains(words, device) || device.find('@') != std::string::npos) return make_arch_backend(device, options);
  const int gpus = cuda_device_count();
  if (device == "auto") return gpus > 0 ? make_cuda_backend(0, options) : make_cpu_backend();
  if (device == "cuda:all")
    throw request_error("--device cuda:all is for tune: this command runs on one device", "name it, such as cuda:0");
  if (device == "gpu" || device.starts_with("gpu:"))
    throw request_error(fmt::format("unknown device '{}'", device),
                        fmt::format("did you mean 'cuda{}'?", device.substr(3)));
  if (device != "cuda" && !device.starts_with("cuda:")) {
    words.insert(words.begin(), {"auto", "cpu", "cuda", "cuda:0"});
    throw unknown_word("device", device, words);
  }
  const auto ordinal =
      device == "cuda" ? 0 : static_cast<int>(parse_integer(device.substr(5), "--device cuda:N", 0, 1023));
  if (gpus == 0)
    throw machine_error(fmt::format("no CUDA device: {}", cuda_unavailable_reason()),
                        "run on the cpu with --device cpu");
  if (ordinal >= gpus)
    throw machine_error(fmt::format("there is no device cuda:{}: this machine has {}", ordinal, gpus),
                        "see 'moetune list devices'");
  return make_cuda_backend(ordinal, options);
}

std::vector<ListedDevice> list_devices() {
  std::vector<ListedDevice> devices;
  for (int i = 0; i < cuda_device_count(); ++i) devices.push_back({fmt::format("cuda:{}", i), cuda_device(i)});
  devices.push_back({"cpu", cpu_device()});
  return devices;
}

}  // namespace moetune
