// A queue to which entries come back.
#include "tune/cell_queue.h"

namespace moetune {

CellQueue::CellQueue(const std::vector<size_t>& order) : waiting_(order.begin(), order.end()) {}

std::optional<size_t> CellQueue::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !waiting_.empty() || under_way_ == 0; });
  if (ended_ || waiting_.empty()) return std::nullopt;
  const size_t index = waiting_.front();
  waiting_.pop_front();
  ++under_way_;
  return index;
}

void CellQueue::done() {
  const std::lock_guard lock(mutex_);
  --under_way_;
  changed_.notify_all();
}

void CellQueue::give_back(size_t index) {
  const std::lock_guard lock(mutex_);
  --under_way_;
  waiting_.push_front(index);
  changed_.notify_all();
}

void CellQueue::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

size_t CellQueue::left() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::optional<size_t> CellQueue::coming() const {
  const std::lock_guard lock(mutex_);
  return ended_ || waiting_.empty() ? std::nullopt : std::optional(waiting_.front());
}

}  // namespace moetune
