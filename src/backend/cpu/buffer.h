// Large memory straight from the system: zero and unbacked until touched. Not what lies in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace moetune {

/// A mapping of at least `bytes` bytes, aligned to a page; from 2 MiB on aligned to that, on huge pages where the
/// system grants them. Pages that nobody touches cost nothing. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  /// Whole huge pages: which sets of a cache the memory falls into is then the same in every process. For scratch
  /// memory, which lives in the caches.
  static Buffer in_one_place(int64_t bytes);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(length_, other.length_);
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
  void* mapping_ = nullptr;  // data lies in it
  size_t length_ = 0;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace moetune
