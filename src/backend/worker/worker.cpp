// The worker's side: one backend, served a line at a time. The parent's side: remote.cpp.
#include "backend/worker/worker.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "backend/worker/protocol.h"
#include "base/error.h"
#include "base/system/file.h"
#include "variant/catalog.h"

namespace moetune {
namespace {

// Ignores Ctrl-C, which reaches the whole process group: the parent decides when a worker ends, and a parent that has
// gone is an error of a write. Asks the system to end the worker when the parent dies, even during a launch. False if
// the parent has ended already.
bool follow_parent(int fd) {
  ucred parent{};
  socklen_t size = sizeof parent;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &parent, &size) != 0) return false;
  if (parent.pid == ::getpid()) return true;  // a thread of the parent itself: nothing to set up
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent.pid;
}

// The next line, or nothing where the parent closed its end.
std::optional<std::string> receive(int fd, std::string& buffer) {
  std::string line;
  std::vector<char> chunk(size_t{1} << 16);
  while (!take_line(buffer, line)) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    buffer.append(chunk.data(), static_cast<size_t>(got));
  }
  return line;
}

struct Served {
  Catalog catalog;
  std::unique_ptr<Backend> backend;
};

Json hello(const JsonAt& request, const BackendFactory& factory, Served& served) {
  const BackendOptions options = backend_options_from_json(request["options"]);
  served.catalog = Catalog(options.packs);
  served.backend = factory(request["device"].string(), options);
  if (!served.backend) throw Error(Exit::bug, "the backend factory made nothing");
  return {{"protocol", kProtocol},
          {"device", to_json(served.backend->device())},
          {"environment", environment_with_packs(*served.backend, served.catalog)},
          {"baselines", served.backend->baselines()}};
}

Json compile(const JsonAt& request, const Served& served) {
  const auto read = [&](const JsonAt& candidate) { return candidate_from_json(candidate, served.catalog); };
  const std::vector<Candidate> candidates = list_at(request["candidates"], read);
  return json_list(served.backend->compile(shape_from_json(request["shape"]), candidates));
}

Json perform(const JsonAt& request, const BackendFactory& factory, const DeviceLister& list, Served& served) {
  const std::string call = request["call"].string();
  if (call == "devices") return to_json(list());
  if (call == "hello") return hello(request, factory, served);
  Backend* backend = served.backend.get();
  if (!backend) throw Error(Exit::bug, fmt::format("the worker was asked to {} before hello", call));
  if (call == "compile") return compile(request, served);
  const auto problem = [&](const char* part) { return problem_from_json(request[part]); };
  if (call == "load") return backend->load(problem("problem")), true;
  if (call == "load_layer") return backend->load_layer(problem("problem"), problem("down")), true;
  if (call == "references") return backend->make_references(), true;
  const auto contender = [&] { return contender_from_json(request["contender"], served.catalog); };
  if (call == "verify") return to_json(backend->verify(contender()));
  if (call == "repeat") return to_json(backend->repeat(contender(), request["seconds"].number()));
  if (call == "sample") return to_json(backend->sample(contender(), sample_request_from_json(request["sample"])));
  if (call == "ceilings") return to_json(backend->ceilings());
  throw Error(Exit::bug, fmt::format("the worker knows no call '{}'", call));
}

}  // namespace

int serve_worker(int fd, const BackendFactory& factory, const DeviceLister& list) {
  if (!follow_parent(fd)) return static_cast<int>(Exit::machine);
  Served served;
  std::string buffer;
  while (const std::optional<std::string> line = receive(fd, buffer)) {
    Json answer, id;
    try {
      const Json request = parse_json(*line, "the request");
      if (request.is_object() && request.contains("id")) id = request["id"];
      answer = {{"ok", perform(JsonAt(request, "the request"), factory, list, served)}};
    } catch (...) {
      answer = answer_of_current_exception();
    }
    answer["id"] = id;
    if (write_all(fd, to_line(answer)) != 0) break;
    // After a failed launch a CUDA context answers every call with the same error: only a new process helps.
    if (answer.contains("fault") && answer["fault"]["status"] == name(Status::launch_error)) break;
  }
  return static_cast<int>(Exit::yes);
}

}  // namespace moetune
