// Which worker runs the other side of `check --against`, and whether both sides compare.
#include "cli/options/against.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text/units.h"
#include "record/table/table.h"
#include "variant/pack/pack.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

WorkerOptions worker_of(const std::string& path, DeviceOptions device) {
  const bool folder = is_folder(path);
  if (holds_packs(path))
    device.packs = {path};
  else
    device.kernels = folder ? path : "";
  WorkerOptions worker = worker_options(device);
  if (!folder) worker.command = {fs::absolute(path).string(), "worker"}, worker.program = path;
  return worker;
}

// Hashes of the kernels that are built in and of packs.
Json kernels_of(Backend& backend) {
  const Json identity = backend.environment().value("identity", Json::object());
  if (!identity.contains("kernels") && !identity.contains("packs")) return {};
  return {identity.value("kernels", Json()), identity.value("packs", Json())};
}

}  // namespace

void require_other(const std::string& path) {
  const bool exists = is_there(path);
  if (!exists || (!is_folder(path) && (!is_file(path) || ::access(path.c_str(), X_OK) != 0)))
    throw request_error(fmt::format("--against: {}{}", path, exists ? " cannot be run" : ": no such file or folder"),
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
