// The cpu as a place where candidates run.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/machine.h"

namespace moetune {

/// Runs the cpu variant and the baseline "loop" on this machine.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace moetune
