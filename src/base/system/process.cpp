// Starting, waiting for and ending child processes.
#include "base/system/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace moetune {
namespace {

// The children that run, 0 = a free place: static, because a signal handler can reach nothing else. Children for which
// there is no place end by themselves, when their socket closes.
std::array<std::atomic<pid_t>, 256> children{};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void replace_child(pid_t before, pid_t after) {
  for (std::atomic<pid_t>& place : children)
    if (pid_t expected = before; place.compare_exchange_strong(expected, after)) return;
}

// A copy above the standard descriptors and the child's socket, so that no dup2 below can overwrite another's source.
Fd moved_up(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 10)); }

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  Actions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
  ~Actions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// Default signal handling, as a new program expects. Signals that a terminal sends to a whole process group are
// blocked. The child leads a group, with which kill() ends the processes that it started too.
void set_signals(posix_spawnattr_t& attributes) {
  sigset_t blocked, defaults;
  sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&blocked, signal);
  sigfillset(&defaults);
  sigdelset(&defaults, SIGKILL);
  sigdelset(&defaults, SIGSTOP);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

}  // namespace

std::string text(const Ending& ending) {
  if (ending.signal == 0) return fmt::format("exited with code {}", ending.code);
  const char* name = ::sigdescr_np(ending.signal);
  return fmt::format("died of signal {} ({})", ending.signal, name ? name : "unknown");
}

Child::Child(const std::vector<std::string>& command) {
  int sockets[2], pipes[2];
  const auto failed = [&](int reason) {
    return machine_error(
        fmt::format("cannot start '{}': {}", command.empty() ? "" : command[0], std::strerror(reason)));
  };
  if (command.empty()) throw failed(EINVAL);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) throw failed(errno);
  socket_ = Fd(sockets[0]);
  const Fd low_socket(sockets[1]);
  if (::pipe2(pipes, O_CLOEXEC) != 0) throw failed(errno);
  errors_ = Fd(pipes[0]);
  const Fd low_pipe(pipes[1]);
  const Fd theirs = moved_up(low_socket.get());
  const Fd their_errors = moved_up(low_pipe.get());
  if (theirs.get() < 0 || their_errors.get() < 0) throw failed(errno);
  ::fcntl(errors_.get(), F_SETFL, O_NONBLOCK);

  Actions actions;
  set_signals(actions.attributes);
  posix_spawn_file_actions_addopen(&actions.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions.files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.files, their_errors.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions.files, theirs.get(), kSocket);
  posix_spawn_file_actions_addclosefrom_np(&actions.files, kSocket + 1);

  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int reason = ::posix_spawnp(&pid_, argv[0], &actions.files, &actions.attributes, argv.data(), environ);
  if (reason != 0) {
    pid_ = 0;
    throw failed(reason);
  }
  replace_child(0, pid_);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), socket_(std::move(other.socket_)), errors_(std::move(other.errors_)) {}

Child& Child::operator=(Child&& other) noexcept {
  Child mine(std::move(*this));
  pid_ = std::exchange(other.pid_, 0);
  socket_ = std::move(other.socket_);
  errors_ = std::move(other.errors_);
  return *this;
}

Child::~Child() {
  if (running()) kill();
}

std::optional<Ending> Child::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running()) {
    int status = 0;
    const pid_t got = ::waitpid(pid_, &status, WNOHANG);
    if (got == pid_ || (got < 0 && errno == ECHILD)) {
      replace_child(std::exchange(pid_, 0), 0);
      if (got < 0) return Ending{};  // already reaped elsewhere: its exit status is unknown
      return WIFSIGNALED(status) ? Ending{WTERMSIG(status), 0} : Ending{0, WEXITSTATUS(status)};
    }
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

std::optional<Ending> Child::kill(double seconds) {
  if (!running()) return std::nullopt;
  ::kill(-pid_, SIGKILL);
  return wait(seconds);
}

void kill_children() {
  for (const std::atomic<pid_t>& child : children)
    if (const pid_t pid = child; pid > 0) ::kill(-pid, SIGKILL);
}

}  // namespace moetune
