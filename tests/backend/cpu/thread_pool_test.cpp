// Every thread does its part once, and what it wrote is seen.
#include "backend/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sleep_ms.h"

namespace moetune {
namespace {

TEST(ThreadPool, CallsAsManyThreadsAsAskedOnce) {
  ThreadPool pool(4), alone(1);
  for (int threads = 1; threads <= 4; ++threads) {
    std::vector<int> calls(4), wanted(4);
    std::fill_n(wanted.begin(), threads, 1);
    pool.run(threads, [&](int thread) { ++calls[thread]; });
    EXPECT_EQ(calls, wanted);
  }
  int calls = 0;
  alone.run(alone.size(), [&](int thread) { calls += 1 + thread; });
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, SurvivesThousandsOfJobsOfChangingWidth) {
  ThreadPool pool(4);
  std::vector<int64_t> calls(4);
  for (int job = 0; job < 5000; ++job) pool.run(1 + job % 4, [&](int thread) { ++calls[thread]; });
  EXPECT_EQ(calls, (std::vector<int64_t>{5000, 3750, 2500, 1250}));
}

TEST(ThreadPool, WakesThreadsThatSleep) {
  ThreadPool pool(3);
  int calls = 0;
  for (int job = 0; job < 3; ++job) {
    sleep_ms(20);
    std::atomic<int> now{0};
    pool.run(3, [&](int) { now.fetch_add(1); });
    calls += now.load();
  }
  EXPECT_EQ(calls, 9);
}

TEST(ThreadPool, WaitsForASlowThread) {
  ThreadPool pool(2);
  int written = 0;
  pool.run(2, [&](int thread) {
    if (thread == 0) return;
    sleep_ms(30);
    written = 7;
  });
  EXPECT_EQ(written, 7);
}

TEST(ThreadPool, ForEachDoesEveryPieceOnce) {
  ThreadPool pool(4);
  for (const int64_t count : {0, 1, 2, 3, 10000}) {
    std::vector<int> done(static_cast<size_t>(count));
    std::vector<int64_t> by_thread(4);
    pool.for_each(3, count, [&](int thread, int64_t i) { ++done[static_cast<size_t>(i)], ++by_thread[thread]; });
    EXPECT_EQ(done, std::vector<int>(static_cast<size_t>(count), 1)) << count;
    EXPECT_EQ(std::accumulate(by_thread.begin(), by_thread.end(), int64_t{0}), count);
    EXPECT_EQ(by_thread[3], 0);
  }
}

}  // namespace
}  // namespace moetune
