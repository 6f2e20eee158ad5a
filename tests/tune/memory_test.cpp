// Thousands of trials of a real worker of the cpu: neither process grows with them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/worker/worker.h"
#include "built_in.h"
#include "tune/fake_backend.h"
#include "tune/tuner.h"

namespace moetune {
namespace {

constexpr int64_t kEarly = 1000, kLate = 5000;  // trials
constexpr double kGrowth = 6;                   // MiB, at most: trials are kept until the end of their cell

double resident_mib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

pid_t only_child() {
  pid_t child = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string id, name, state;
    pid_t parent = 0;
    if (stat >> id >> name >> state >> parent && parent == ::getpid()) child = std::stoi(id);
  }
  return child;
}

SearchSpace large_space() {
  SearchSpace space{.name = "large", .variants = {{.variant = built_in().find("cpu"), .values = {}}}};
  std::vector<int> rows, columns;
  for (int i = 1; i <= 52; ++i) rows.push_back(8 * i), columns.push_back(32 * i);
  space.variants[0].values = {{"block_m", rows}, {"block_n", columns}, {"block_k", {64, 128}}, {"threads", {1}}};
  return space;
}

TEST(Memory, IsFlatOverThousandsOfTrials) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep what was freed";
#endif
  WorkerOptions options;
  options.command = {MOETUNE_BINARY, "worker"};
  options.device = "cpu";
  const std::unique_ptr<Backend> backend = make_worker_backend(options);
  TuneRequest request;
  request.cells = {fake::small_cell()};
  request.space = large_space();
  request.strategy = "exhaustive";
  request.max_candidates = kLate;
  request.blocks = 1;
  request.block_seconds = 1e-6;
  request.final_rounds = 1;
  request.final_wait = 0;
  const pid_t worker = only_child();
  ASSERT_GT(worker, 0);
  double parent_early = 0, worker_early = 0, parent_late = 0, worker_late = 0;
  const auto listen = [&](const Event& event) {
    const auto* finished = std::get_if<TrialFinished>(&event);
    if (finished && finished->done == kEarly)
      parent_early = resident_mib(::getpid()), worker_early = resident_mib(worker);
    if (finished && finished->done == kLate) parent_late = resident_mib(::getpid()), worker_late = resident_mib(worker);
  };
  Journal journal;  // writes nowhere: waiting for the disk would take most of the time
  const std::atomic<bool> stop = false;
  tune(request, {backend.get()}, journal, {}, listen, stop, {});
  ASSERT_GT(worker_early, 0);
  ASSERT_GT(worker_late, 0) << "the worker that began is there at the end";
  EXPECT_LT(parent_late - parent_early, kGrowth) << "of " << parent_early << " MiB";
  EXPECT_LT(worker_late - worker_early, kGrowth) << "of " << worker_early << " MiB";
  RecordProperty("parent_mib", std::to_string(parent_late));
  RecordProperty("worker_mib", std::to_string(worker_late));
}

}  // namespace
}  // namespace moetune
