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
  explicit CellQueue(const std::vector<size_t>& order);

  /// The next cell. Waits while none is left but one that is under way may be given back; nothing once all are done,
  /// or after end().
  std::optional<size_t> next();
  void done();                   // one that next() gave
  void give_back(size_t index);  // the same, undone: the next that is handed out
  void end();                    // nothing is handed out any more
  size_t left() const;           // not handed out
  /// What next() gives now, without taking it.
  std::optional<size_t> coming() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> waiting_;
  size_t under_way_ = 0;
  bool ended_ = false;
};

}  // namespace moetune
