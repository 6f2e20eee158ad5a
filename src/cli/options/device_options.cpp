// --device, --kernels, --pack, --no-cache.
#include "cli/options/device_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands/command.h"
#include "cli/text/output.h"
#include "record/table/table.h"
#include "variant/pack/pack.h"

namespace moetune {

namespace {

using Workers = std::vector<std::unique_ptr<Backend>>;

void require_one_model(const std::vector<ListedDevice>& gpus) {
  for (const ListedDevice& gpu : gpus)
    if (!same_model(gpus[0].info, gpu.info))
      throw machine_error(fmt::format("{} is {}, {} is {}: a table is of one model", gpus[0].word,
                                      model_text(gpus[0].info), gpu.word, model_text(gpu.info)),
                          "name GPUs of one model in CUDA_VISIBLE_DEVICES");
}

// Cores that compile for a worker. N workers of a GPU seldom all wait for compilers, so that each has more than an Nth.
void set_cores(WorkerOptions& worker, int64_t cores_of_gpu, const Sharing& sharing) {
  const int64_t cores = 2 * cores_of_gpu / (sharing.at_once + 1);
  worker.backend.compile_threads = static_cast<int>(std::max<int64_t>(1, cores));
}

// The workers of a device: one, and as many more as its memory has room for and its compute mode allows. Kernels of a
// cpu use all of it, so it has one.
Workers open_on(WorkerOptions worker, const Sharing& sharing) {
  if (sharing.at_once > 1) worker.turn = std::make_shared<std::recursive_mutex>();
  Workers workers;
  workers.push_back(make_worker_backend(worker));
  const DeviceInfo& device = workers.front()->device();
  if (device.kind == DeviceKind::cpu && !worker.device.starts_with("cuda")) return workers;
  // What a worker takes of a GPU's memory at most: its CUDA context, and a problem with several sets of its operands,
  // the reference results and what kernels need beside.
  const double bytes = 1e9 + 6 * sharing.problem_bytes;
  const auto room = static_cast<int64_t>(static_cast<double>(device.memory_bytes) / bytes);
  std::vector<std::future<std::unique_ptr<Backend>>> more;
  for (int64_t i = 1; i < std::min(sharing.at_once, room); ++i)
    more.push_back(std::async(std::launch::async, [&] { return make_worker_backend(worker); }));
  for (auto& one : more) try {
      workers.push_back(one.get());
    } catch (const Error& error) {
      // A GPU in exclusive mode takes one process: that one tunes all cells.
      if (error.exit() != Exit::machine) throw;
    }
  return workers;
}

}  // namespace

std::vector<std::string> arch_names(const std::vector<std::string>& given, const std::vector<std::string>& otherwise) {
  if (given.empty()) return otherwise;
  std::vector<std::string> names;
  for (const std::string& word : list_words(given, "--arch")) add_once(names, arch(device_of_arch(word)));
  return names;
}

std::vector<std::string> device_words() {
  std::vector<std::string> words = {"auto", "cpu", "cuda", "cuda:0", "cuda:all"};
  std::ranges::move(gpu_words(), std::back_inserter(words));
  return words;
}

bool is_all_gpus(const DeviceOptions& options) { return options.device == "cuda:all"; }

void declare(OptionSet& set, DeviceOptions& options) {
  set.group("Device");
  set.value("--device", options.device, "WORD",
            "auto (a GPU if there is one), cpu, cuda, cuda:1; tune also takes cuda:all, and with --dry-run h200, b200, "
            "... or any GPU as 'NVIDIA H20@sm_90a'; doctor also takes all",
            device_words);
  set.value("--kernels", options.kernels, "DIR", "Read device code from here instead of from the binary");
  declare_packs(set, options.packs);
  set.flag("--no-cache", options.no_cache, "Do not read or write the cache of compiled kernels");
  set.group("Options");
}

std::vector<std::string> device_arguments(const DeviceOptions& options) {
  std::vector<std::string> words;
  if (options.device != "auto") words.insert(words.end(), {"--device", options.device});
  if (!options.kernels.empty()) words.insert(words.end(), {"--kernels", options.kernels});
  for (const std::string& pack : options.packs) words.insert(words.end(), {"--pack", pack});
  return words;
}

void declare_packs(OptionSet& set, std::vector<std::string>& packs) {
  set.list(
      "--pack", packs, "DIR",
      "Add the kernels in this folder: a pack.json, an export's manifest.json, or subfolders with one; they are tuned "
      "like any variant");
}

void note_left_out(const Catalog& catalog, const std::string& folders, const Terminal& terminal) {
  if (const auto& names = catalog.left_out(); !names.empty())
    note(terminal, fmt::format("{}: {} {} left out: packs have one launch, and no gradients of gates", folders,
                               fmt::join(names, ", "), names.size() == 1 ? "is" : "are"));
}

void note_packs(const Catalog& catalog, const Terminal& terminal) {
  note_left_out(catalog, "--pack", terminal);
  for (const VariantPtr& variant : catalog.variants())
    if (variant->pack)
      each(JsonAt(variant->pack->launches, "launches"), [&](const JsonAt& launch) {
        if (!is_timed(launch))
          note(terminal, fmt::format("{} runs {} once before all launches: it is not timed", variant->name,
                                     launch["entry"].string()));
      });
}

void declare_regime(OptionSet& set, std::optional<Regime>& regime, const std::string& otherwise) {
  set.value(
      "--regime", [&regime](const std::string& word, const std::string&) { regime = parse_regime(word); }, "WORD",
      fmt::format("How a GPU is loaded while it is timed: burst (near its boost clock) or sustained (until its power "
                  "limit lowers the clock) [{}]",
                  otherwise),
      one_of({"burst", "sustained"}));
}

WorkerOptions worker_options(const DeviceOptions& options) {
  std::error_code error;
  if (!options.kernels.empty() && !is_folder(options.kernels))
    throw request_error(fmt::format("--kernels: {} is not a folder", options.kernels));
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw machine_error("cannot find this program's own file: /proc is not mounted");
  WorkerOptions worker;
  worker.command = {self.string(), "worker"};
  worker.device = options.device;
  worker.backend.kernels_folder = options.kernels;
  worker.backend.cache = !options.no_cache;
  for (const std::string& pack : options.packs)
    worker.backend.packs.push_back(std::filesystem::absolute(pack).string());
  return worker;
}

std::unique_ptr<Backend> open_worker(const DeviceOptions& options) {
  return make_worker_backend(worker_options(options));
}

std::vector<std::unique_ptr<Backend>> open_workers(const DeviceOptions& options, const Sharing& sharing) {
  WorkerOptions worker = worker_options(options);
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  if (!is_all_gpus(options)) {
    set_cores(worker, cores, sharing);
    return open_on(worker, sharing);
  }
  std::vector<ListedDevice> gpus = list_devices_in_worker(worker);
  std::erase_if(gpus, [](const ListedDevice& device) { return !device.word.starts_with("cuda:"); });
  if (gpus.empty()) gpus.push_back({"cuda:0", {}});  // which fails to open, with the reason
  require_one_model(gpus);
  set_cores(worker, cores / std::ssize(gpus), sharing);
  std::vector<std::future<Workers>> opening;
  for (const ListedDevice& gpu : gpus) {
    worker.device = gpu.word;
    opening.push_back(std::async(std::launch::async, open_on, worker, sharing));
  }
  Workers workers;
  for (auto& one : opening)
    for (std::unique_ptr<Backend>& opened : one.get()) workers.push_back(std::move(opened));
  return workers;
}

DeviceLock lock(const Backend& backend, const DeviceOptions& options, const Invocation& invocation) {
  const DeviceInfo& device = backend.device();
  const std::string known = device.kind == DeviceKind::cpu ? "cpu" : device.name;
  const bool chosen = options.device != "auto" && !is_all_gpus(options);
  return lock_device(device.id, chosen ? options.device : known, shell_line(invocation.argv));
}

}  // namespace moetune
