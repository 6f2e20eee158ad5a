// What the system says of this machine, and how much of it others use.
#include "backend/cpu/machine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "base/system/process.h"
#include "sleep_ms.h"

namespace moetune {
namespace {

// Threads that do nothing but keep processors busy.
class Spinners {
 public:
  explicit Spinners(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_) {
        }
      });
  }
  ~Spinners() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Spinners(const Spinners&) = delete;
  Spinners& operator=(const Spinners&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

double own_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void work_for(double seconds) {
  const double end = own_seconds() + seconds;
  while (own_seconds() < end) {
  }
}

TEST(CpuMachine, KnowsItself) {
  const DeviceInfo device = cpu_device();
  EXPECT_EQ(device.kind, DeviceKind::cpu);
  EXPECT_EQ(device.id, "cpu");
  EXPECT_FALSE(device.name.empty());
  EXPECT_NE(device.name.front(), ' ');
  EXPECT_GE(device.processors, 1);
  EXPECT_GE(device.cache_bytes, 64 << 10);
  EXPECT_LE(device.cache_bytes, int64_t{16} << 30);
  EXPECT_GE(device.memory_bytes, 64 << 20);
  EXPECT_EQ(device, cpu_device());
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_LT(available_memory_bytes(), device.memory_bytes);
}

TEST(OtherLoad, IsUnknownAtFirst) {
  OtherLoad load;
  EXPECT_EQ(load.share(), 0);
}

TEST(OtherLoad, CountsWhatOtherProcessesUse) {
  OtherLoad load;
  const Child other({"/bin/sh", "-c", "while :; do :; done"});
  sleep_ms(400);
  const double share = load.share();
  EXPECT_GT(share, 0.5 / std::thread::hardware_concurrency());
  EXPECT_LE(share, 1);
  EXPECT_EQ(load.share(), share);  // until there is news
}

TEST(OtherLoad, LeavesOutWhatThisProcessUses) {
  OtherLoad load;
  const double begin = own_seconds();
  const auto start = std::chrono::steady_clock::now();
  work_for(0.4);
  const double share = load.share();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double all = elapsed * std::thread::hardware_concurrency();
  EXPECT_LE(share, 1 - (own_seconds() - begin) / all + 0.05);
}

// Threads that begin count from then on; those that have ended count no more.
TEST(SecondsWithoutProcessor, CountsAllThreadsThatLive) {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const double alone = seconds_without_processor();
  double crowded = 0;
  {
    const Spinners spinners(4 * processors);
    sleep_ms(300);
    crowded = seconds_without_processor();
  }
  if (crowded == 0) GTEST_SKIP() << "this system doesn't tell";
  EXPECT_GT(crowded - alone, 0.3) << "three of four had to wait";
  EXPECT_LT(seconds_without_processor(), crowded);
}

}  // namespace
}  // namespace moetune
