// The program behind main: parse, run one command, turn errors into exit codes.
#pragma once
#include "tune/worker.h"

namespace moetune {

/// Runs a command line; returns its exit code. `factory` opens backends in the worker (tests hand in their own).
int run_app(int argc, char** argv, const BackendFactory& factory);

}  // namespace moetune
