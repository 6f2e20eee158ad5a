// What the system says of this machine, as far as it can be known beforehand.
#include "backend/cpu/machine.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

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

}  // namespace
}  // namespace moetune
