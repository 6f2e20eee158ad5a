// One holder a device, and the lock goes with its holder.
#include "base/lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/file.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace moetune {
namespace {

class Lock : public testing::Test {
 protected:
  void SetUp() override { ::setenv("MOETUNE_LOCK_DIR", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("MOETUNE_LOCK_DIR"); }
  const TemporaryFolder folder_;
};

TEST_F(Lock, TellsItsHolder) {
  const DeviceLock lock = lock_device("GPU-1234", "cuda:0", "moetune tune --model x");
  EXPECT_EQ(lock.path(), folder_.path() / "moetune-GPU-1234.lock");
  EXPECT_EQ(read_text(lock.path()), fmt::format("{}\nmoetune tune --model x\n", ::getpid()));
}

TEST_F(Lock, ASecondHolderIsRefusedWithTheFirstOnesPid) {
  const DeviceLock lock = lock_device("GPU-1234", "cuda:0");
  const Caught caught = error_of([] { lock_device("GPU-1234", "cuda:0"); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, fmt::format("another moetune (pid {}) is using cuda:0", ::getpid()));
  EXPECT_NE(caught.hint.find("choose another device"), std::string::npos) << caught.hint;
}

TEST_F(Lock, WithoutAWordTheDeviceIsKnownByItsId) {
  const DeviceLock lock = lock_device("cpu");
  EXPECT_NE(error_of([] { lock_device("cpu"); }).what.find("is using cpu"), std::string::npos);
}

TEST_F(Lock, DevicesAreLockedApart) {
  const DeviceLock one = lock_device("GPU-1"), two = lock_device("GPU-2");
  EXPECT_NE(one.path(), two.path());
}

TEST_F(Lock, IsFreeAgainAfterItsHolder) {
  std::optional<DeviceLock> lock(
      lock_device("cpu", "cpu", "a long command line that the next one must not leave behind"));
  lock.reset();
  const DeviceLock again = lock_device("cpu", "cpu", "short");
  EXPECT_EQ(read_text(again.path()), fmt::format("{}\nshort\n", ::getpid()));
}

TEST_F(Lock, TheKernelFreesItWhenTheHolderIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const DeviceLock lock = lock_device("cpu");
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(error_of([] { lock_device("cpu"); }).what, fmt::format("another moetune (pid {}) is using cpu", holder));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_EQ(error_of([] { lock_device("cpu"); }).exit, Exit::yes);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Lock, AStrangeIdMakesAPlainFileName) {
  EXPECT_EQ(lock_device("../../etc/x y").path(), folder_.path() / "moetune-______etc_x_y.lock");
}

TEST_F(Lock, NeverFollowsALink) {
  const auto victim = folder_.write("victim", "precious");
  std::filesystem::create_symlink(victim, folder_.path() / "moetune-cpu.lock");
  EXPECT_EQ(error_of([] { lock_device("cpu"); }).exit, Exit::machine);
  EXPECT_EQ(read_text(victim), "precious");
}

TEST_F(Lock, AMissingFolderIsAnErrorWithAHint) {
  ::setenv("MOETUNE_LOCK_DIR", "/nowhere", 1);
  const Caught caught = error_of([] { lock_device("cpu"); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, "/nowhere/moetune-cpu.lock: cannot make the lock file: No such file or directory");
  EXPECT_NE(caught.hint.find("MOETUNE_LOCK_DIR"), std::string::npos);
}

TEST_F(Lock, LivesInTmpByDefault) {
  ::unsetenv("MOETUNE_LOCK_DIR");
  EXPECT_EQ(lock_folder(), "/tmp");
  ::setenv("MOETUNE_LOCK_DIR", "", 1);
  EXPECT_EQ(lock_folder(), "/tmp");
}

}  // namespace
}  // namespace moetune
