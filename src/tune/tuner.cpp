// A run over several devices, each with a thread that takes cell after cell. How one cell is tuned: tune_cell.cpp.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "tune/run.h"

namespace moetune {
namespace {

TunedTable table_so_far(const Shared& shared) {
  TunedTable table = shared.table;
  for (const std::optional<Entry>& entry : shared.entries)
    if (entry) table.entries.push_back(*entry);
  return table;
}

// The cells to tune: those without an entry of an earlier run first. One device takes them in the order of the request.
// Several begin with the largest, so that all end at about the same time.
std::vector<size_t> order_of(const TuneRequest& request, const JournalContents& before, size_t devices) {
  std::vector<size_t> order(request.cells.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (devices > 1) order = by_work(request.cells);
  std::erase_if(order, [&](size_t index) { return decided_entry(request, before, request.cells[index]) != nullptr; });
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t index) { return !before.decided.contains(id(request.cells[index])); });
  return order;
}

// Whether there is time for another cell. The first cell is always tuned.
bool in_time(const Run& run, size_t index) {
  if (index == run.shared.order.front() || Clock::now() < run.shared.end) return true;
  warn(run, fmt::format("the time budget is spent: {} of {} cells are not begun; run again with --resume and a "
                        "larger --time-budget",
                        run.shared.queue.left() + 1, run.request.cells.size()));
  return false;
}

// Tunes one cell. False where the run ends.
bool work_on(Run& run, size_t index) {
  if (stopped(run) || !in_time(run, index)) return false;
  std::optional<Entry> entry = tune_cell(run, index);
  if (!entry) return false;
  Shared& shared = run.shared;
  with_lock(run, [&] {
    if (shared.over) return;
    shared.entries[index] = std::move(*entry);
    if (shared.listen) shared.listen(CellFinished{&*shared.entries[index], run.device});
    if (shared.after_cell) shared.after_cell(table_so_far(shared));
  });
  return true;
}

void leave_to_others(const Run& run, size_t index, const std::string& what) {
  const DeviceInfo& device = run.backend.device();
  warn(run, fmt::format("{} ({}) {}", device.name, device.id, what));
  run.shared.queue.give_back(index);
}

// The error of the last device ends the run.
void retire(const Run& run, size_t index, const std::string& why) {
  {
    const std::lock_guard lock(run.shared.mutex);
    auto& workers = run.shared.workers;
    const std::string& id = run.backend.device().id;
    if (--workers.at(id) == 0) workers.erase(id);
    if (run.shared.over || workers.empty()) throw;
  }
  leave_to_others(run, index, fmt::format("is lost, and the other devices go on with its cell: {}", why));
}

// Frees this worker's memory for the others on its device. False if there are no others.
bool make_room(const Run& run, size_t index, const std::string& why) {
  {
    const std::lock_guard lock(run.shared.mutex);
    size_t& workers = run.shared.workers.at(run.backend.device().id);
    if (workers <= 1) return false;
    --workers;
  }
  leave_to_others(run, index, fmt::format("has no room for so many cells at a time: {}", why));
  return true;
}

// Tunes a cell. False where the worker leaves the run.
bool take(Run& run, size_t index) {
  try {
    if (!work_on(run, index)) run.shared.queue.end();
    run.shared.queue.done();
    return true;
  } catch (const Error& error) {
    if (error.exit() != Exit::machine) throw;
    retire(run, index, error.what());
  } catch (const CandidateFault& fault) {
    retire(run, index, fault.what());
  } catch (const Crowded& crowded) {
    if (!make_room(run, index, crowded.why)) return take(run, index);
  }
  return false;
}

void work(Run& run) {
  try {
    while (const std::optional<size_t> index = run.shared.queue.next())
      if (!take(run, *index)) return;
  } catch (...) {
    const std::lock_guard lock(run.shared.mutex);
    fail(run.shared, std::current_exception());
  }
}

}  // namespace

TunedTable tune(const TuneRequest& request, const std::vector<Backend*>& devices, Journal& journal,
                const JournalContents& before, const Listener& listen, const std::atomic<bool>& stop,
                const std::function<void(const TunedTable&)>& after_cell) {
  Shared shared{.request = request,
                .journal = journal,
                .listen = listen,
                .stop = stop,
                .after_cell = after_cell,
                .devices = devices.size(),
                .order = order_of(request, before, devices.size()),
                .before = before};
  for (const Backend* device : devices) ++shared.workers[device->device().id];
  for (const Cell& cell : request.cells) {
    const auto found = before.decided.find(id(cell));
    shared.entries.push_back(found == before.decided.end() ? std::nullopt : std::optional(found->second));
  }
  shared.table.tool = request.tool;
  shared.table.device = devices.at(0)->device();
  shared.table.environment = devices.at(0)->environment();
  shared.table.regime = request.regime;
  shared.end = end_of_budget(request.time_budget);
  if (const TunedTable known = table_so_far(shared); after_cell && !known.entries.empty()) after_cell(known);
  const auto run_on = [&](size_t device) {
    Run run{shared, request, *devices[device], device,
            CandidateSource(request.space, devices[device]->device(), drawn_candidates(request))};
    work(run);
  };
  std::vector<std::thread> others;
  for (size_t device = 1; device < devices.size(); ++device) others.emplace_back(run_on, device);
  run_on(0);
  for (std::thread& other : others) other.join();
  if (shared.failure) std::rethrow_exception(shared.failure);
  return table_so_far(shared);
}

}  // namespace moetune
