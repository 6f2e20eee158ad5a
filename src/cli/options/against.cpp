// Which worker runs the other side of `check --against`, and whether both sides compare.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text/units.h"
#include "cli/options/device_options.h"
#include "record/table/mergeable.h"
#include "workload/product.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

WorkerOptions worker_of(const std::string& path, DeviceOptions device) {
  if (is_folder(path)) {
    device.kernels = path;
    return worker_options(device);
  }
  device.kernels.clear();
  WorkerOptions worker = worker_options(device);
  worker.command = {fs::absolute(path).string(), "worker"};
  worker.program = path;
  return worker;
}

Json kernels_of(Backend& backend) {
  const Json environment = backend.environment();
  return environment.contains("identity") ? environment["identity"].value("kernels", Json()) : Json();
}

}  // namespace

void require_other(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw request_error(fmt::format("--against: {}: no such file or folder", path),
                        "name another moetune binary, or a folder of kernels");
  if (!is_folder(path) && (!fs::is_regular_file(path, error) || ::access(path.c_str(), X_OK) != 0))
    throw request_error(fmt::format("--against: {} cannot be run", path),
                        "name another moetune binary, or a folder of kernels");
}

std::unique_ptr<Backend> open_other(const std::string& path, const DeviceOptions& options, const Backend& here) {
  if (is_folder(path) && here.device().kind == DeviceKind::cpu)
    throw request_error(fmt::format("--against: {} is a folder of GPU kernels, and the device is a cpu", path),
                        "name another moetune binary: the cpu's code is in it");
  DeviceOptions device = options;
  if (device.device == "auto") device.device = here.device().kind == DeviceKind::cpu ? "cpu" : "cuda";
  std::unique_ptr<Backend> there = make_worker_backend(worker_of(path, device));
  if (!same_model(there->device(), here.device()) || there->device().id != here.device().id)
    throw machine_error(
        fmt::format("{} opens {}, this program {}", path, model_text(there->device()), model_text(here.device())),
        "name the device with --device");
  return there;
}

std::string about_both(const std::string& path, Backend& here, Backend& there, const std::vector<Cell>& cells) {
  double most = 0;
  for (const Cell& cell : cells) most = std::max(most, static_cast<double>(bytes(product_of(make_problem(cell)))));
  const bool same = kernels_of(here) == kernels_of(there) && !kernels_of(here).is_null();
  return fmt::format("this program and {} keep their operands at the same time: at least {} for the largest cell{}",
                     path, format_bytes(2 * most), same ? "; both have the same kernels" : "");
}

}  // namespace moetune
