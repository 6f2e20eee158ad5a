// What the devices of a run share, under one lock. For this folder only: others call `tune`.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tune/rounds.h"
#include "tune/tuner.h"

namespace moetune {

/// Hands out cells in the given order, each to one device at a time. Every call may come from any thread.
class CellQueue {
 public:
  explicit CellQueue(const std::vector<size_t>& order) : waiting_(order.begin(), order.end()) {}

  /// The next cell. If none is left, waits for those under way, which may be given back. Nothing once all are done, or
  /// after end().
  std::optional<size_t> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || !waiting_.empty() || under_way_ == 0; });
    if (ended_ || waiting_.empty()) return std::nullopt;
    const size_t index = waiting_.front();
    waiting_.pop_front();
    ++under_way_;
    return index;
  }

  /// A cell that next() gave is done.
  void done() {
    change([&] { --under_way_; });
  }
  /// A cell that next() gave is not done: it is the next that is handed out.
  void give_back(size_t index) {
    change([&] { --under_way_, waiting_.push_front(index); });
  }
  /// Nothing is handed out any more.
  void end() {
    change([&] { ended_ = true; });
  }

  /// How many are not handed out.
  size_t left() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  /// The cell that next() would give now; it stays in the queue.
  std::optional<size_t> coming() const {
    const std::lock_guard lock(mutex_);
    return ended_ || waiting_.empty() ? std::nullopt : std::optional(waiting_.front());
  }

 private:
  template <typename Action>
  void change(const Action& action) {
    const std::lock_guard lock(mutex_);
    action();
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> waiting_;
  size_t under_way_ = 0;
  bool ended_ = false;
};

// What all devices of a run have in common. The mutex guards every member below it, the journal and the listeners.
struct Shared {
  const TuneRequest& request;
  Journal& journal;
  const Listener& listen;
  const std::atomic<bool>& stop;
  const std::function<void(const TunedTable&)>& after_cell;
  const size_t devices;
  const std::vector<size_t> order;  // in which cells are begun
  Clock::time_point end = Clock::time_point::max();
  CellQueue queue = CellQueue(order);
  std::atomic<bool> over = false;  // the run has failed

  std::mutex mutex = {};
  TunedTable table = {};  // without entries
  std::vector<std::optional<Entry>> entries = {};
  JournalContents before = {};  // what earlier runs and lost devices did
  std::set<std::string> said = {};
  std::map<std::string, size_t> workers = {};  // that are left, by the id of their device
  std::exception_ptr failure = {};
};

// A device's part of a run.
struct Run {
  Shared& shared;
  const TuneRequest& request;
  Backend& backend;
  size_t device;
  CandidateSource source;
};

/// A cell does not fit into the device's memory beside the cells of other workers: they go on without this worker.
struct Crowded {
  std::string why;
};

/// How many workers of the run use its device.
size_t workers_of_device(const Run& run);

/// Whether the run ends before its last cell: by the user, or by a failure.
bool stopped(const Run& run);

/// Ends the run for all devices; the run throws the first failure. The mutex must be held.
void fail(Shared& shared, const std::exception_ptr& failure);

/// Does what concerns all devices, with the mutex held. An exception ends the run.
void with_lock(const Run& run, const std::function<void()>& action);

/// Passes the event to the listener.
void emit(const Run& run, const Event& event);

/// Passes a warning to the listener; the same text once per run.
void warn(const Run& run, const std::string& text);

/// Tunes a cell of the request. Nothing where the run was stopped before the first trial. Where the device is lost, its
/// error is thrown and the trials so far are left in `shared.before`. Throws Crowded before the first trial.
std::optional<Entry> tune_cell(Run& run, size_t index);

}  // namespace moetune
