// Which cell a device takes next, where several share a run.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace moetune {

/// Hands out cells in the given order, each to one device at a time. Every call may come from any thread.
class CellQueue {
 public:
  explicit CellQueue(const std::vector<size_t>& order) : waiting_(order.begin(), order.end()) {}

  /// The next cell. Waits while none is left but one that is under way may be given back; nothing once all are done,
  /// or after end().
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
  /// What next() gives now, without taking it.
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

}  // namespace moetune
