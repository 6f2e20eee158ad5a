// Starting jobs, waiting for them, ending threads.
#include "backend/cpu/thread_pool.h"

namespace moetune {
namespace {

/// Spins for longer than the gap between launches of a timed block, but too short to cost power.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `word` differs from `old`: first awake, then asleep. Returns what it is now.
template <class T>
T wait_for_change(const std::atomic<T>& word, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (const T now = word.load(std::memory_order_acquire); now != old) return now;
    pause();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : seats_(static_cast<size_t>(threads - 1)) {
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  call_ = nullptr;  // the sign for threads to end
  for (Seat& seat : seats_) seat.call();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::start(int threads, Call call, void* context) {
  call_ = call;
  context_ = context;
  unfinished_.store(threads - 1, std::memory_order_relaxed);
  for (int thread = 1; thread < threads; ++thread) seats_[static_cast<size_t>(thread - 1)].call();
  call(context, 0);
  for (int left = unfinished_.load(std::memory_order_acquire); left != 0; left = wait_for_change(unfinished_, left)) {
  }
}

void ThreadPool::work(int thread) {
  const auto& ticket = seats_[static_cast<size_t>(thread - 1)].ticket;
  for (uint32_t seen = 0;;) {
    seen = wait_for_change(ticket, seen);
    if (call_ == nullptr) return;
    call_(context_, thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

}  // namespace moetune
