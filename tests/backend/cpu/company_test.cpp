// How much of the processors others use, with others of our own.
#include "backend/cpu/company.h"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "base/system/process.h"

namespace moetune {
namespace {

double own_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void work_for(double seconds) {
  const double end = own_seconds() + seconds;
  while (own_seconds() < end) {
  }
}

TEST(Company, IsUnknownAtFirst) {
  Company company;
  EXPECT_EQ(company.share(), 0);
}

TEST(Company, CountsWhatOtherProcessesUse) {
  Company company;
  const Child other({"/bin/sh", "-c", "while :; do :; done"});
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double share = company.share();
  EXPECT_GT(share, 0.5 / std::thread::hardware_concurrency());
  EXPECT_LE(share, 1);
  EXPECT_EQ(company.share(), share);  // until there is news
}

TEST(Company, LeavesOutWhatThisProcessUses) {
  Company company;
  const double begin = own_seconds();
  const auto start = std::chrono::steady_clock::now();
  work_for(0.4);
  const double share = company.share();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double all = elapsed * std::thread::hardware_concurrency();
  EXPECT_LE(share, 1 - (own_seconds() - begin) / all + 0.05);
}

}  // namespace
}  // namespace moetune
