// The parent's end of one worker process: ask, wait until a deadline, say how the process ended. What follows from that
// is remote.cpp's.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/system/process.h"

namespace moetune {

/// The worker is gone: it died, or outlasted its limit and was killed. what() says which, with its last words.
struct WorkerGone : std::runtime_error {
  WorkerGone(bool late, int by_signal, const std::string& sentence)
      : std::runtime_error(sentence), timed_out(late), signal(by_signal) {}
  bool timed_out;
  int signal;  // that ended it and that the parent didn't send; 0 = none
};

constexpr int kDeathsInARow = 3;  // of workers, after which a device or compiler is taken to be at fault

class Link {
 public:
  Link() = default;  // no worker
  explicit Link(const std::vector<std::string>& command) : child_(command) {}

  /// Whether there is a worker and it still runs.
  bool alive() { return child_.running() && !child_.wait(0); }

  /// Sends {"call": call, ...body} and waits for the answer. Throws WorkerGone, or what the answer says (protocol.h).
  Json ask(const std::string& call, const Json& body, double limit_seconds);

  /// From now on `ask` ends the worker and throws WorkerGone as soon as this descriptor can be read.
  void cancel_on(int fd) { cancel_ = fd; }

  /// Ends the worker, if there is one.
  void end();

 private:
  struct Deadline;
  void send(const std::string& line, const Deadline& deadline);
  std::string receive(const Deadline& deadline);
  void wait_for(short events, const Deadline& deadline);
  void hear_errors();
  [[noreturn]] void fail_dead();
  std::string last_words();

  Child child_;
  std::string received_;
  std::string errors_;  // the last kErrorBytes that the worker wrote to its standard error
  std::string call_;    // under way
  int64_t last_id_ = 0;
  int cancel_ = -1;
};

}  // namespace moetune
