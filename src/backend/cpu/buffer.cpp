// Mapping and unmapping.
#include "backend/cpu/buffer.h"

#include <sys/mman.h>

#include <new>

namespace moetune {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

template <class T>
T rounded_up(T value) {
  return (value + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

Buffer::Buffer(int64_t bytes) {
  if (bytes <= 0) return;
  const bool huge = bytes >= kHugePage;
  const auto length = static_cast<size_t>(bytes + (huge ? kHugePage : 0));  // room to align in; untouched it is free
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Only a hint: huge pages need fewer address translations, and change no result.
  if (huge) madvise(memory, length, MADV_HUGEPAGE);
  mapping_ = memory;
  length_ = length;
  data_ = static_cast<std::byte*>(memory);
  if (huge) data_ += rounded_up(reinterpret_cast<uintptr_t>(data_)) - reinterpret_cast<uintptr_t>(data_);
  bytes_ = bytes;
}

Buffer Buffer::in_one_place(int64_t bytes) { return Buffer(rounded_up(bytes)); }

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, length_);
}

}  // namespace moetune
