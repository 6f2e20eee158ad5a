// Large memory straight from the system, and results between guard zones in it. Not what lies there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/cpu/thread_pool.h"
#include "workload/dtype.h"

namespace moetune {

/// A mapping of at least `bytes` bytes, zero and without pages until it is touched. Aligned to a page; from 2 MiB on
/// aligned to that, on huge pages where the system grants them. Throws std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

  /// Replaces a smaller one by whole huge pages: which sets of a cache the memory falls into is then the same in every
  /// process. For memory that stays in the caches.
  void grow(int64_t bytes);

 private:
  struct Unmap {
    size_t length;
    void operator()(void* mapping) const;
  };
  std::unique_ptr<void, Unmap> mapping_;  // data lies in it
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// The value of every 16 bits before a run: NaNs in every format.
constexpr uint16_t kUnwritten = 0xffff;

/// D [rows, columns] in memory with a guard zone before and after it.
class Output {
 public:
  static constexpr int64_t kGuardBytes = 64 << 10;

  Output() = default;
  Output(int64_t rows, int64_t columns, Dtype dtype)
      : bytes_(rows * columns * size_bytes(dtype)), memory_(bytes_ + 2 * kGuardBytes) {}

  /// Null for one that was made without sizes.
  std::byte* data() const { return memory_.data() ? memory_.data() + kGuardBytes : nullptr; }
  int64_t bytes() const { return bytes_; }

  /// Fills D and its guards with kUnwritten.
  void reset(ThreadPool& pool) const;

  /// Bytes written before and after D since reset.
  int64_t written_before() const { return written(memory_.data()); }
  int64_t written_after() const { return written(data() + bytes_); }

 private:
  static int64_t written(const std::byte* guard);
  int64_t bytes_ = 0;
  Buffer memory_;
};

}  // namespace moetune
