// One holder a device or a file, and the lock goes with its holder.
#include "base/system/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "base/system/file.h"
#include "error_of.h"
#include "temporary_folder.h"

namespace moetune {
namespace {

// A process that holds what `lock` returns until it is killed.
template <typename Lock>
pid_t hold_elsewhere(const Lock& lock) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto held = lock();
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return holder;
}

class Lock : public testing::Test {
 protected:
  void SetUp() override { ::setenv("MOETUNE_LOCK_DIR", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("MOETUNE_LOCK_DIR"); }
  const TemporaryFolder folder_;
};

TEST_F(Lock, NamesItsHolder) {
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
  const pid_t holder = hold_elsewhere([] { return lock_device("cpu"); });
  EXPECT_EQ(error_of([] { lock_device("cpu"); }).what, fmt::format("another moetune (pid {}) is using cpu", holder));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_EQ(error_of([] { lock_device("cpu"); }).exit, Exit::yes);
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
  ::setenv("MOETUNE_LOCK_DIR", "/sys", 1);  // not even root makes files there
  EXPECT_FALSE(error_of([] { lock_device("cpu"); }).what.ends_with("No such file or directory"));
}

TEST_F(Lock, LivesInTmpByDefault) {
  ::unsetenv("MOETUNE_LOCK_DIR");
  EXPECT_EQ(lock_folder(), "/tmp");
  ::setenv("MOETUNE_LOCK_DIR", "", 1);
  EXPECT_EQ(lock_folder(), "/tmp");
}

class FileLock : public testing::Test {
 protected:
  static Fd open(const std::filesystem::path& path) { return Fd(::open(path.c_str(), O_WRONLY | O_CREAT, 0600)); }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "j.jsonl";
};

TEST_F(FileLock, ASecondHolderIsRefusedWithTheName) {
  const Fd first = open(path_), second = open(path_);
  lock_file(first.get(), path_);
  read_text(path_);  // opens and closes the file
  const Caught caught = error_of([&] { lock_file(second.get(), path_); });
  EXPECT_EQ(caught.exit, Exit::request);
  EXPECT_TRUE(caught.what.starts_with("another moetune")) << caught.what;
  EXPECT_TRUE(caught.what.ends_with(" is using " + path_.string())) << caught.what;
  EXPECT_EQ(caught.hint, "wait until it has ended, or choose another file");
}

TEST_F(FileLock, TheKernelFreesItWhenTheHolderIsKilled) {
  const pid_t holder = hold_elsewhere([&] {
    Fd file = open(path_);
    lock_file(file.get(), path_);
    return file;
  });
  const Fd file = open(path_);
  const Caught caught = error_of([&] { lock_file(file.get(), path_); });
  EXPECT_EQ(caught.exit, Exit::request);
  if (caught.what.find("(pid") != std::string::npos) {  // where /proc/locks has it
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

TEST_F(FileLock, ADeviceIsAnybodys) {
  const Fd first = open("/dev/null"), second = open("/dev/null");
  lock_file(first.get(), "/dev/null");
  EXPECT_EQ(error_of([&] { lock_file(second.get(), "/dev/null"); }).exit, Exit::yes);
}

class OutputLocks : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "table.json", lock_path_ = folder_.path() / "table.json.lock";
};

TEST_F(OutputLocks, ASecondHolderIsRefusedWithTheNameAndTheRemedy) {
  const OutputLock first(path_);
  const Caught caught = error_of([&] { const OutputLock second(path_); });
  EXPECT_EQ(caught.exit, Exit::request);
  EXPECT_EQ(caught.what, fmt::format("another moetune (pid {}) is using {}", ::getpid(), path_.string()));
  EXPECT_EQ(caught.hint, "wait until it has ended, or choose another file");
}

TEST_F(OutputLocks, ItsFileGoesWithIt) {
  {
    OutputLock lock(path_);
    EXPECT_TRUE(std::filesystem::exists(lock_path_));
    const OutputLock moved(std::move(lock));
    EXPECT_EQ(error_of([&] { const OutputLock second(path_); }).exit, Exit::request);
  }
  EXPECT_FALSE(std::filesystem::exists(lock_path_));
  EXPECT_FALSE(std::filesystem::exists(path_));
  const OutputLock again(path_);
}

TEST_F(OutputLocks, WhatAKilledHolderLeftLocksNothing) {
  const pid_t holder = hold_elsewhere([&] { return OutputLock(path_); });
  EXPECT_EQ(error_of([&] { const OutputLock lock(path_); }).exit, Exit::request);
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(lock_path_));
  EXPECT_EQ(error_of([&] { const OutputLock lock(path_); }).exit, Exit::yes);
  EXPECT_FALSE(std::filesystem::exists(lock_path_));
}

TEST_F(OutputLocks, RemovesTheTemporariesOfDeadProcesses) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const auto beside = [&](const std::string& end) { return path_.string() + end; };
  for (const std::string& end :
       {fmt::format(".{}.tmp", dead), fmt::format(".{}-2.tmp", dead), fmt::format(".{}.tmp", ::getpid())})
    write_atomic(beside(end), "half");
  std::filesystem::create_directories(beside(fmt::format(".{}-3.tmp", dead)) + "/kernels");
  const std::vector<std::string> others = {fmt::format(".{}.tmp", ::getppid()), ".17.tmp.json", ".x.tmp", ".tmp"};
  for (const std::string& end : others) write_atomic(beside(end), "kept");
  { const OutputLock lock(path_); }
  for (const std::string& end : others) EXPECT_TRUE(std::filesystem::exists(beside(end))) << end;
  for (const std::string& end : {fmt::format(".{}.tmp", dead), fmt::format(".{}-2.tmp", dead),
                                 fmt::format(".{}-3.tmp", dead), fmt::format(".{}.tmp", ::getpid())})
    EXPECT_FALSE(std::filesystem::exists(beside(end))) << end;
}

TEST_F(OutputLocks, PutsBackAFolderThatADeadProcessHadMovedAway) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const std::filesystem::path away = path_.string() + fmt::format(".{}.old.tmp", dead);
  std::filesystem::create_directories(away / "old");
  { const OutputLock lock(path_); }
  EXPECT_TRUE(std::filesystem::exists(path_ / "old"));
  std::filesystem::create_directories(away);  // the new one has come to its place: the old one goes
  { const OutputLock lock(path_); }
  EXPECT_TRUE(std::filesystem::exists(path_ / "old"));
  EXPECT_FALSE(std::filesystem::exists(away));
}

TEST_F(OutputLocks, AFileThatMoetuneDidNotMakeIsRefusedAndStays) {
  for (const std::string content : {"mine", "17\nnode3\n", "moetun"}) {
    write_atomic(lock_path_, content);
    const Caught caught = error_of([&] { const OutputLock lock(path_); });
    EXPECT_EQ(caught.exit, Exit::request);
    EXPECT_EQ(caught.what, fmt::format("{}: moetune would lock {} by this file, which it did not make",
                                       lock_path_.string(), path_.string()));
    EXPECT_EQ(caught.hint, "move it away, or choose another output");
    EXPECT_EQ(read_text(lock_path_), content);
  }
}

TEST_F(OutputLocks, AnEmptyFileStaysEmpty) {
  write_atomic(lock_path_, "");
  {
    const OutputLock lock(path_);
    EXPECT_EQ(error_of([&] { const OutputLock second(path_); }).exit, Exit::request);
  }
  EXPECT_TRUE(std::filesystem::exists(lock_path_));
  EXPECT_EQ(read_text(lock_path_), "");
}

TEST_F(OutputLocks, AllNamesOfAFileShareIt) {
  write_atomic(path_, "{}");
  const std::filesystem::path link = folder_.path() / "link.json";
  std::filesystem::create_symlink(path_, link);
  const OutputLock first(path_);
  EXPECT_TRUE(error_of([&] { const OutputLock lock(link); }).what.ends_with(" is using " + link.string()));
}

TEST_F(OutputLocks, AnotherMachinesHolderIsNamedWithItsHost) {
  const Fd file = Fd(::open(lock_path_.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(::flock(file.get(), LOCK_EX), 0);
  ASSERT_EQ(::write(file.get(), "17\nnode3\n", 9), 9);
  const Caught caught = error_of([&] { const OutputLock lock(path_); });
  EXPECT_EQ(caught.what, "another moetune (pid 17 on node3) is using " + path_.string());
}

// Whoever waited for a lock file that its holder removed meanwhile must not hold that file beside the next one's.
TEST_F(OutputLocks, ManyHoldersInTurnNeverOverlap) {
  constexpr int kHolders = 4, kTurns = 200;
  std::vector<pid_t> holders;
  for (int i = 0; i < kHolders; ++i) {
    const pid_t holder = ::fork();
    if (holder == 0) {
      for (int turn = 0; turn < kTurns;) try {
          const OutputLock lock(path_);
          const int fd = ::open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
          if (fd < 0) ::_exit(1);
          ::close(fd);
          ::unlink(path_.c_str());
          ++turn;
        } catch (const Error&) {
        }
      ::_exit(0);
    }
    holders.push_back(holder);
  }
  for (const pid_t holder : holders) {
    int status = 0;
    ::waitpid(holder, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace moetune
