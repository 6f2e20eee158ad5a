// `moetune worker`: the process that touches the device. Started by this program alone, on file descriptor 3.
#include <fcntl.h>

#include "base/system/process.h"
#include "cli/commands/command.h"

namespace moetune {
namespace {

Exit run_worker(const Invocation& invocation) {
  if (::fcntl(Child::kSocket, F_GETFD) < 0)
    throw request_error("the command 'worker' is internal: other commands start it");
  return static_cast<Exit>(serve_worker(Child::kSocket, *invocation.factory, *invocation.lister));
}

}  // namespace

Command worker_command() {
  return {.name = "worker",
          .summary = "Serve a device to a parent process",
          .examples = "",
          .declare = [](OptionSet&) -> Action { return run_worker; },
          .hidden = true};
}

}  // namespace moetune
