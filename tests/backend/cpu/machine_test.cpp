// What the system says of this machine, as far as it can be known beforehand.
#include "backend/cpu/machine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

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

void sleep_for(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

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
}
TEST(CpuMachine, IsTheSameWhenAskedAgain) { EXPECT_EQ(cpu_device(), cpu_device()); }
TEST(CpuMachine, HasLessMemoryAvailableThanInAll) {
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_LT(available_memory_bytes(), cpu_device().memory_bytes);
}

// Threads that begin count from then on; those that have ended count no more.
TEST(SecondsWithoutProcessor, CountsAllThreadsThatLive) {
  const int processors = cpu_device().processors;
  const double alone = seconds_without_processor();
  double crowded = 0;
  {
    const Spinners spinners(4 * processors);
    sleep_for(300);
    crowded = seconds_without_processor();
  }
  if (crowded == 0) GTEST_SKIP() << "this system doesn't tell";
  EXPECT_GT(crowded - alone, 0.3) << "three of four had to wait";
  EXPECT_LT(seconds_without_processor(), crowded);
}

}  // namespace
}  // namespace moetune
