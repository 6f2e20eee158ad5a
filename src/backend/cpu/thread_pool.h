// Threads that wait between launches. Not what they compute, nor how work is divided.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace moetune {

/// A fixed set of threads; the caller's is the first of them. Threads spin for some microseconds after a job, so that
/// the next one starts fast, and sleep then. One job at a time, from one calling thread.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(seats_.size()) + 1; }

  /// Calls job(thread) once for each thread in [0, threads), at the same time, and returns when all have returned.
  /// What they wrote is then visible here. A job must not throw. 1 <= threads <= size().
  template <class Job>
  void run(int threads, Job&& job) {
    start(
        threads, [](void* context, int thread) { (*static_cast<std::remove_reference_t<Job>*>(context))(thread); },
        const_cast<void*>(static_cast<const void*>(&job)));
  }

  /// Calls work(thread, i) once for each i in [0, count), in no order, on all threads or no more than `threads` of
  /// them. Work must not throw.
  template <class Work>
  void for_each(int64_t count, Work&& work) {
    for_each(size(), count, work);
  }
  template <class Work>
  void for_each(int threads, int64_t count, Work&& work) {
    std::atomic<int64_t> next{0};
    run(static_cast<int>(std::clamp<int64_t>(count, 1, threads)), [&](int thread) {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
           i = next.fetch_add(1, std::memory_order_relaxed))
        work(thread, i);
    });
  }

 private:
  using Call = void (*)(void* context, int thread);
  /// One worker's own cache line: a new ticket is a new job.
  struct alignas(64) Seat {
    std::atomic<uint32_t> ticket{0};
    void call() {
      ticket.fetch_add(1, std::memory_order_release);
      ticket.notify_one();
    }
  };
  void start(int threads, Call call, void* context);
  void work(int thread);

  std::vector<Seat> seats_;
  std::vector<std::thread> workers_;
  Call call_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<int> unfinished_{0};
};

}  // namespace moetune
