// Errors, memory and streams.
#include "backend/cuda/libraries/runtime.h"

#include <fmt/format.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/text/units.h"

namespace moetune {

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that later calls don't report it
  throw machine_error(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
}

void require_candidate(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw CandidateFault(Status::launch_error, fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

void copy_to_device(void* to, const void* from, size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cannot copy to the device");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cannot copy to the device");
}

void set_on_device(void* to, int byte, size_t bytes) {
  require(cudaMemset(to, byte, bytes), "cannot fill memory");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cannot fill memory");
}

void set_in_order(void* to, int byte, int64_t bytes, cudaStream_t stream) {
  require(cudaMemsetAsync(to, byte, static_cast<size_t>(bytes), stream), "cannot fill memory");
}

DeviceBuffer::DeviceBuffer(int64_t bytes) : size_(bytes) {
  const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory(fmt::format("the device has no {} left", format_bytes(static_cast<double>(bytes))), bytes);
  }
  require(error, "cannot allocate memory");
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ && owned_) cudaFree(data_);
}

Stream::Stream() {
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream");
  require(cudaEventCreate(&begin), "cannot create an event");
  require(cudaEventCreate(&end), "cannot create an event");
}

Stream::~Stream() {
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
}

}  // namespace moetune
