// The worker process and its parent's side. The parent never touches CUDA; the worker may die at any time.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace moetune {

/// Opens a backend by device word, in the worker. Tests hand in their own.
using BackendFactory =
    std::function<std::unique_ptr<Backend>(const std::string& device, const BackendOptions& options)>;

/// Lists the devices, in the worker.
using DeviceLister = std::function<std::vector<ListedDevice>()>;

/// Serves one backend over a file descriptor: JSON lines in, JSON lines out, until it closes. Returns the exit code.
/// Runs in the process that `moetune worker` starts.
int serve_worker(int fd, const BackendFactory& factory, const DeviceLister& list = list_devices);

struct WorkerOptions {
  std::vector<std::string> command;  // argv of the worker process; it serves file descriptor 3
  std::string program = {};          // its file, for messages; empty where it is this program
  std::string device = "auto";
  BackendOptions backend;
  double start_seconds = 60;  // limits of the watchdog
  double compile_seconds = 600;
  double load_seconds = 300;
  double trial_seconds = 20;  // verify or sample of one contender, at least
  double trial_factor = 20;   // and this multiple of the best trial so far, where that is longer
  // Held while the worker uses its device; of all workers that take turns on one. May be null.
  std::shared_ptr<std::recursive_mutex> turn = {};
};

/// A Backend that lives in a worker process. When the worker dies or outlasts its limit, the call throws
/// CandidateFault (crashed with the signal, or timeout) and the next call starts a new worker, which loads and compiles
/// what the old one had. After three deaths in a row with nothing done between them, a contender that ran before is
/// tried; where that fails too, Exit::machine is thrown.
std::unique_ptr<Backend> make_worker_backend(const WorkerOptions& options);

/// Devices as a worker sees them (the parent never touches CUDA).
std::vector<ListedDevice> list_devices_in_worker(const WorkerOptions& options);

}  // namespace moetune
