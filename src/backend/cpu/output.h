// The result of a run, between guard zones, and what may not be written. Not how it is compared.
#pragma once
#include <cstdint>

#include "backend/cpu/buffer.h"
#include "backend/cpu/thread_pool.h"
#include "workload/dtype.h"

namespace moetune {

/// The value of every 16 bits before a run: a NaN in bf16, in fp16 and (two of them) in fp32.
constexpr uint16_t kUnwritten = 0xffdb;

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
