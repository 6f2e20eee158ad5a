// Children: their descriptors, their ends, and that nothing of them stays.
#include "base/system/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "error_of.h"

namespace moetune {
namespace {

Child shell(const std::string& script) { return Child({"/bin/sh", "-c", script}); }

// Everything that comes over a descriptor until its end.
std::string read_all(int fd) {
  std::string text;
  char chunk[256];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return text;
    text.append(chunk, static_cast<size_t>(got));
  }
}

TEST(Ending, InWords) {
  EXPECT_EQ(text(Ending{.signal = SIGSEGV}), "died of signal 11 (Segmentation fault)");
  EXPECT_EQ(text(Ending{.signal = 0, .code = 3}), "exited with code 3");
  EXPECT_EQ(text(Ending{.signal = 99}), "died of signal 99 (unknown)");
}

TEST(Child, TalksOverDescriptorThree) {
  Child child = shell("read line <&3; echo \"got $line\" >&3");
  ASSERT_EQ(::write(child.socket(), "it\n", 3), 3);
  EXPECT_EQ(read_all(child.socket()), "got it\n");
  EXPECT_EQ(child.wait(10), (Ending{0, 0}));
}

TEST(Child, StandardErrorIsHeardAndStandardOutputIsNot) {
  Child child = shell("echo out; echo err >&2; cat");  // cat ends at once: its input is /dev/null
  EXPECT_EQ(child.wait(10), (Ending{0, 0}));
  EXPECT_EQ(read_all(child.errors()), "err\n");
}

TEST(Child, InheritsNothingElse) {
  const int mine = ::open("/dev/null", O_RDONLY);  // not even what says nothing of exec
  Child other = shell("sleep 60");
  Child child = shell("exec ls /proc/self/fd >&3");
  EXPECT_EQ(read_all(child.socket()), "0\n1\n2\n3\n4\n");  // the last is the folder itself
  ::close(mine);
}

TEST(Child, ReportsExitCodesAndSignals) {
  EXPECT_EQ(shell("exit 5").wait(10), (Ending{0, 5}));
  EXPECT_EQ(shell("kill -SEGV $$").wait(10), (Ending{SIGSEGV, 0}));
}

TEST(Child, WaitsNoLongerThanAsked) {
  Child child = shell("sleep 60");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(child.wait(0.05), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_TRUE(child.running());
}

TEST(Child, KillEndsAnything) {
  Child child = shell("trap '' INT TERM HUP; sleep 60; sleep 60");
  EXPECT_EQ(child.kill(), (Ending{SIGKILL, 0}));
  EXPECT_FALSE(child.running());
  EXPECT_EQ(child.kill(), std::nullopt);
}

TEST(Child, KillEndsWhatItStarted) {
  Child child = shell("sleep 60 & echo >&3; wait");
  char line;
  ASSERT_EQ(::read(child.socket(), &line, 1), 1);
  child.kill();
  pollfd end{child.socket(), POLLIN, 0};  // closed once nobody has the other end
  EXPECT_EQ(::poll(&end, 1, 20'000), 1);
}

TEST(Child, DestructionLeavesNoZombie) {
  pid_t pid = 0;
  {
    const Child child = shell("sleep 60");
    pid = child.pid();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, AssignmentEndsTheOneBefore) {
  Child child = shell("sleep 60");
  const pid_t first = child.pid();
  child = shell("exit 4");
  EXPECT_NE(::kill(first, 0), 0);
  EXPECT_EQ(child.wait(10), (Ending{0, 4}));
}

TEST(Child, MovesWithItsSocket) {
  Child child = shell("read line <&3; echo \"got $line\" >&3");
  Child moved = std::move(child);
  EXPECT_FALSE(child.running());
  ASSERT_EQ(::write(moved.socket(), "it\n", 3), 3);
  EXPECT_EQ(read_all(moved.socket()), "got it\n");
}

TEST(Child, SurvivesACtrlCWhileItStarts) {
  Child child({"sleep", "0.2"});  // SIGINT stays blocked for those who don't ask for it
  ::kill(child.pid(), SIGINT);
  EXPECT_EQ(child.wait(10), (Ending{0, 0}));
}

TEST(Child, AMissingProgramIsNamed) {
  const Caught caught = error_of([] { Child({"/nowhere/program"}); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, "cannot start '/nowhere/program': No such file or directory");
  EXPECT_EQ(error_of([] { Child(std::vector<std::string>{}); }).exit, Exit::machine);
}

}  // namespace
}  // namespace moetune
