// The program behind main: parse, run one command, turn errors into exit codes.
#pragma once
#include <functional>

#include "backend/worker/worker.h"
#include "cli/text/console.h"

namespace moetune {

/// Runs a command line; returns its exit code. `factory` opens backends and `lister` lists devices, both in the
/// worker (tests hand in their own).
int run_app(int argc, char** argv, const BackendFactory& factory, const DeviceLister& lister = list_devices);

/// Runs `body`; what it throws becomes lines on standard error and an exit code.
int guarded(const Terminal& terminal, const std::function<int()>& body);

}  // namespace moetune
