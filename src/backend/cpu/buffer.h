// Large memory straight from the system: zero and unbacked until touched. Not what lies in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace moetune {

/// A mapping of at least `bytes` bytes, aligned to a page, on huge pages where the system grants them. Pages that
/// nobody touches cost nothing. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace moetune
