// One holder a device or a file, and the lock goes with its holder.
#include "base/lock.h"

#include <fcntl.h>
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

// A test's file, and a process of its own that holds it until it is killed.
class FileLock : public testing::Test {
 protected:
  static Fd open(const std::filesystem::path& path) { return Fd(::open(path.c_str(), O_WRONLY | O_CREAT, 0600)); }

  pid_t hold_elsewhere() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
      const Fd file = open(path_);
      lock_file(file.get(), path_);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return holder;
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "j.jsonl";
};

TEST_F(FileLock, ASecondHolderIsRefusedWithTheName) {
  const Fd first = open(path_), second = open(path_);
  lock_file(first.get(), path_);
  const Caught caught = error_of([&] { lock_file(second.get(), path_); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_TRUE(caught.what.starts_with("another moetune")) << caught.what;
  EXPECT_TRUE(caught.what.ends_with(" is using " + path_.string())) << caught.what;
  EXPECT_EQ(caught.hint, "wait until it has ended, or choose another file");
}

TEST_F(FileLock, TheKernelFreesItWhenTheHolderIsKilled) {
  const pid_t holder = hold_elsewhere();
  const Fd file = open(path_);
  const Caught caught = error_of([&] { lock_file(file.get(), path_); });
  EXPECT_EQ(caught.exit, Exit::machine);
  if (caught.what.find("(pid") != std::string::npos) {  // where /proc/locks tells
    EXPECT_TRUE(caught.what.starts_with(fmt::format("another moetune (pid {}) is", holder))) << caught.what;
  }
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_EQ(error_of([&] { lock_file(file.get(), path_); }).exit, Exit::yes);
}

TEST_F(FileLock, IsOfTheFileWhateverItsName) {
  const Fd first = open(path_);
  lock_file(first.get(), path_);
  const std::filesystem::path link = folder_.path() / "link";
  std::filesystem::create_symlink(path_, link);
  const Fd second = open(link);
  EXPECT_TRUE(error_of([&] { lock_file(second.get(), link); }).what.ends_with("is using " + link.string()));
}

TEST_F(FileLock, ReadingBesideItLeavesItHeld) {
  const Fd first = open(path_), second = open(path_);
  lock_file(first.get(), path_);
  read_text(path_);  // opens and closes the file
  EXPECT_EQ(error_of([&] { lock_file(second.get(), path_); }).exit, Exit::machine);
}

TEST_F(FileLock, ADeviceIsAnybodys) {
  const Fd first = open("/dev/null"), second = open("/dev/null");
  lock_file(first.get(), "/dev/null");
  EXPECT_EQ(error_of([&] { lock_file(second.get(), "/dev/null"); }).exit, Exit::yes);
}

}  // namespace
}  // namespace moetune
