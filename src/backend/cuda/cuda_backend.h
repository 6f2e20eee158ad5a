// The CUDA backend: NVRTC kernels, cuBLAS references, graph-timed blocks. Only the worker process opens it.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace moetune {

/// How many GPUs there are; 0 with no driver or no device.
int cuda_device_count();

/// Why there are none, as the driver says it; "" where there are some.
std::string cuda_unavailable_reason();

/// Properties of a GPU that is there.
DeviceInfo cuda_device(int ordinal);

std::unique_ptr<Backend> make_cuda_backend(int ordinal, const BackendOptions& options);

}  // namespace moetune
