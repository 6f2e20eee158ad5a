// --device, --kernels, --no-cache.
#include "cli/device_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/wording.h"

namespace moetune {

void declare(OptionSet& set, DeviceOptions& options) {
  set.group("Device");
  set.value("--device", options.device, "WORD", "auto (a GPU where there is one), cpu, cuda, cuda:1");
  set.value("--kernels", options.kernels, "DIR", "Read device code from here instead of from the binary");
  set.flag("--no-cache", options.no_cache, "Do not read or write the cache of compiled kernels");
  set.group("Options");
}

WorkerOptions worker_options(const DeviceOptions& options) {
  std::error_code error;
  if (!options.kernels.empty() && !std::filesystem::is_directory(options.kernels, error))
    throw request_error(fmt::format("--kernels: {} is not a folder", options.kernels));
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw machine_error("cannot find this program's own file: /proc is not mounted");
  WorkerOptions worker;
  worker.command = {self.string(), "worker"};
  worker.device = options.device;
  worker.backend.kernels_folder = options.kernels;
  worker.backend.cache = !options.no_cache;
  return worker;
}

std::unique_ptr<Backend> open_worker(const DeviceOptions& options) {
  return make_worker_backend(worker_options(options));
}

DeviceLock lock(const Backend& backend, const DeviceOptions& options, const Invocation& invocation) {
  const DeviceInfo& device = backend.device();
  const std::string of_auto = device.kind == DeviceKind::cpu ? "cpu" : device.name;
  return lock_device(device.id, options.device == "auto" ? of_auto : options.device, shell_line(invocation.argv));
}

}  // namespace moetune
