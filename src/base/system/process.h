// Child processes connected by a socket. The messages are not defined here.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/system/file.h"

namespace moetune {

/// How a process ended: by a signal, or by itself with an exit code.
struct Ending {
  int signal = 0;  // 0: none
  int code = 0;
  bool operator==(const Ending&) const = default;
};
std::string text(const Ending& ending);  // "died of signal 11 (Segmentation fault)", "exited with code 3"

/// A child process. File descriptor 3 there is the other end of socket() here; its standard input and output are
/// /dev/null, its standard error can be read, without blocking, at errors(). It inherits no other descriptor.
/// SIGINT, SIGTERM and SIGHUP are blocked in it from birth, so that a Ctrl-C meant for the parent can't end it before
/// it has set its own handling.
class Child {
 public:
  static constexpr int kSocket = 3;

  Child() = default;
  /// Throws Exit::machine where the program can't be started.
  explicit Child(const std::vector<std::string>& command);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;  // ends the one that it had
  ~Child();                                  // kill(), and no zombie stays

  bool running() const { return pid_ > 0; }  // not yet reaped
  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }
  int errors() const { return errors_.get(); }

  /// Waits for its end; nothing if it still runs after `seconds`.
  std::optional<Ending> wait(double seconds);
  /// SIGKILL to it and to what it started, then wait. Nothing if even that doesn't end it: it hangs in the kernel.
  std::optional<Ending> kill(double seconds = 10);

 private:
  pid_t pid_ = 0;
  Fd socket_;
  Fd errors_;
};

/// SIGKILL to every child of this process that still runs and to what it started. A signal handler may call it.
void kill_children();

}  // namespace moetune
