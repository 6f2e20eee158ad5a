// Options of commands that run on a device, and the worker behind them. No command touches a device itself, except
// `bench --in-process`.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/worker/worker.h"
#include "base/system/lock.h"
#include "cli/options/options.h"
#include "cli/text/console.h"
#include "variant/catalog.h"

namespace moetune {

struct Invocation;

struct DeviceOptions {
  std::string device = "auto";
  std::string kernels;             // a folder
  std::vector<std::string> packs;  // folders
  bool no_cache = false;
};
void declare(OptionSet& set, DeviceOptions& options);
std::vector<std::string> device_words();  // that --device takes here, without looking for devices

/// --arch, each architecture once: sm_90a of "sm_90,sm_90a". Exit::request for an unknown one.
std::vector<std::string> arch_names(const std::vector<std::string>& given,
                                    const std::vector<std::string>& otherwise = {});

/// The words of a command line that name this device, its kernels and packs.
std::vector<std::string> device_arguments(const DeviceOptions& options);

/// --pack DIR, as often as wanted; part of declare(OptionSet&, DeviceOptions&).
void declare_packs(OptionSet& set, std::vector<std::string>& packs);

/// Says which steps of packs run once, outside of the times.
void note_packs(const Catalog& catalog, const Terminal& terminal);
/// Names the kernels of exports in these folders that take no part.
void note_left_out(const Catalog& catalog, const std::string& folders, const Terminal& terminal);

/// --regime; `otherwise` is what --help says of its default.
void declare_regime(OptionSet& set, std::optional<Regime>& regime, const std::string& otherwise = "burst");

/// Whether these name every GPU.
bool is_all_gpus(const DeviceOptions& options);

/// How to start this program's worker: this very binary, with the word `worker`.
WorkerOptions worker_options(const DeviceOptions& options);

/// Opens the device in a worker. Errors as of make_worker_backend; --kernels must be a folder.
std::unique_ptr<Backend> open_worker(const DeviceOptions& options);

/// How workers share a device: at most `at_once` a GPU take turns on it, as many as it takes and its memory has room
/// for, with problems of `problem_bytes` each.
struct Sharing {
  int64_t at_once = 1;
  double problem_bytes = 0;
};

/// Every GPU that CUDA shows where the device is cuda:all, else that device alone, each in a worker or several. GPUs of
/// unlike models are refused. Errors as of open_worker.
std::vector<std::unique_ptr<Backend>> open_workers(const DeviceOptions& options, const Sharing& sharing = {});

/// No other moetune uses the device while this lives. Errors as of lock_device.
DeviceLock lock(const Backend& backend, const DeviceOptions& options, const Invocation& invocation);

}  // namespace moetune
