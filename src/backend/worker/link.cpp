// Reading and writing with a deadline, beside a child that may die at any moment.
#include "backend/worker/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>

#include "backend/worker/protocol.h"
#include "base/error.h"
#include "base/text/units.h"

namespace moetune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kErrorBytes = 4096;
constexpr size_t kQuotedBytes = 600;
constexpr double kDyingSeconds = 5;  // from closing its socket to its end; writing a core dump takes time

// One line of printable text.
std::string flattened(const std::string& text) {
  std::string flat;
  for (const char c : text) {
    const bool space = static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
    if (!space) flat += c;
    if (space && !flat.empty() && flat.back() != ' ') flat += ' ';
  }
  while (!flat.empty() && flat.back() == ' ') flat.pop_back();
  return flat;
}

}  // namespace

struct Link::Deadline {
  explicit Deadline(double limit) : seconds(limit), end(Clock::now() + std::chrono::duration<double>(limit)) {}
  // Whole milliseconds that are left, rounded up: 0 only after the deadline.
  int milliseconds() const {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    return left <= 0 ? 0 : static_cast<int>(std::min(std::ceil(left * 1e3), 1e9));
  }
  double seconds;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end;
};

Json Link::ask(const std::string& call, const Json& body, double limit_seconds) {
  const Deadline deadline(limit_seconds);
  call_ = call;
  Json request = {{"id", ++last_id_}, {"call", call}};
  request.update(body);
  send(to_line(request), deadline);
  const std::string line = receive(deadline);
  try {
    const Json answer = parse_json(line, "the worker's answer");
    if (!answer.is_object() || answer.value("id", Json()) != last_id_)
      throw Error(Exit::bug, "the worker answered another question");
    return result_of(answer);
  } catch (const Error& error) {
    if (error.exit() == Exit::bug) end();  // its answers can't be understood: don't ask it again
    throw;
  }
}

void Link::send(const std::string& line, const Deadline& deadline) {
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t sent = ::send(child_.socket(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) left.remove_prefix(static_cast<size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) fail_dead();
    wait_for(POLLOUT, deadline);
  }
}

std::string Link::receive(const Deadline& deadline) {
  std::string line;
  std::vector<char> chunk(size_t{1} << 16);
  while (!take_line(received_, line)) {
    wait_for(POLLIN, deadline);
    const ssize_t got = ::recv(child_.socket(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (got <= 0) fail_dead();
    received_.append(chunk.data(), static_cast<size_t>(got));
  }
  hear_errors();
  return line;
}

// Returns when the socket is ready (or closed). Listens to standard error meanwhile, or the worker would block on it.
void Link::wait_for(short events, const Deadline& deadline) {
  bool listening = true;
  for (;;) {
    pollfd ends[3] = {
        {child_.socket(), events, 0}, {listening ? child_.errors() : -1, POLLIN, 0}, {cancel_, POLLIN, 0}};
    const int ready = ::poll(ends, 3, deadline.milliseconds());
    if (ready < 0 && errno != EINTR) throw machine_error("cannot wait for the worker");
    if (ready < 0) continue;
    if (ready == 0 || ends[2].revents) {
      end();
      const std::string late =
          fmt::format("{} took longer than {}{}", call_, format_time(deadline.seconds), last_words());
      throw WorkerGone(ready == 0, 0, ready == 0 ? late : call_ + " was cancelled");
    }
    if (ends[1].revents) hear_errors();
    if ((ends[1].revents & (POLLHUP | POLLERR)) && !(ends[1].revents & POLLIN)) listening = false;
    if (ends[0].revents) return;
  }
}

void Link::hear_errors() {
  char chunk[1024];
  for (;;) {
    const ssize_t got = ::read(child_.errors(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    errors_.append(chunk, static_cast<size_t>(got));
    if (errors_.size() > kErrorBytes) errors_.erase(0, errors_.size() - kErrorBytes);
  }
}

std::string Link::last_words() {
  hear_errors();
  std::string words = flattened(errors_);
  if (words.size() > kQuotedBytes) words = "..." + words.substr(words.size() - kQuotedBytes);
  return words.empty() ? "" : fmt::format("; its last words: \"{}\"", words);
}

void Link::fail_dead() {
  const std::optional<Ending> ending = child_.wait(kDyingSeconds);
  if (!ending) end();
  const std::string how = ending ? text(*ending) : "closed its socket and had to be killed";
  throw WorkerGone(false, ending ? ending->signal : 0, fmt::format("the worker {} in {}{}", how, call_, last_words()));
}

void Link::end() {
  if (child_.running() && !child_.kill())
    throw machine_error(fmt::format("the worker (pid {}) can't be killed: it hangs in the kernel", child_.pid()),
                        "the device or its driver is stuck; look at dmesg, then reset the device or reboot");
}

}  // namespace moetune
