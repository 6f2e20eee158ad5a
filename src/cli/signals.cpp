// Signal handlers. The flag is the one piece of static state: a handler can reach nothing else.
#include "cli/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/error.h"
#include "base/system/process.h"

namespace moetune {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void on_signal(int signal) {
  if (stop.exchange(true)) {
    kill_children();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  constexpr std::string_view kWords = "\nmoetune: stopping after this trial; press Ctrl-C again to stop at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords.data(), kWords.size());
}

void set_handler(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;  // what is under way goes on: the flag is looked at between trials
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  set_handler(on_signal);
  return stop;
}

void end_on_signals() {
  set_handler([](int) {
    kill_children();
    ::_exit(static_cast<int>(Exit::interrupted));
  });
}

void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));  // takes the lowest number
}

void ignore_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace moetune
