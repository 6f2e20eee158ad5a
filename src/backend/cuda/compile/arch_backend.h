// A backend without a device: it compiles for an architecture and runs nothing.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace moetune {

/// Compiles for `architecture` ("sm_90a"). Only device, environment, baselines and compile answer; the other calls
/// throw Exit::request. Kernels are not kept in memory: their use is to fill the cache on disk.
std::unique_ptr<Backend> make_arch_backend(const std::string& architecture, const BackendOptions& options);

}  // namespace moetune
