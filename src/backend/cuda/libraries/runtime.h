// Owners of CUDA memory, streams and events; CUDA errors as exceptions.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

namespace moetune {

/// Throws Exit::machine with the runtime's words unless `error` is cudaSuccess.
void require(cudaError_t error, const char* what);

/// Throws CandidateFault{launch_error} unless `error` is cudaSuccess: for launches and waits of a candidate's kernel.
void require_candidate(cudaError_t error, const char* what);

/// Copies from ordinary host memory, or sets every byte of device memory, and waits until that is done. cudaMemcpy and
/// cudaMemset return earlier, and a non-blocking Stream doesn't wait for them (CUDA Runtime API, "API synchronization
/// behavior").
void copy_to_device(void* to, const void* from, size_t bytes);
void set_on_device(void* to, int byte, size_t bytes);
/// Sets every byte in the order of a stream, which may be capturing.
void set_in_order(void* to, int byte, int64_t bytes, cudaStream_t stream);

/// Device memory. Throws OutOfMemory with the size where there is too little.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes);
  /// Memory of another buffer, which outlives it.
  DeviceBuffer(char* data, int64_t bytes) : data_(data), size_(bytes), owned_(false) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();
  char* data() const { return data_; }
  int64_t size() const { return size_; }
  template <class T>
  T* as(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data_ + byte_offset);
  }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owned_, other.owned_);
  }
  char* data_ = nullptr;
  int64_t size_ = 0;
  bool owned_ = true;
};

/// A stream and a pair of events; one a backend.
struct Stream {
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

}  // namespace moetune
