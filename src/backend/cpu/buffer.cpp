// Mapping and unmapping.
#include "backend/cpu/buffer.h"

#include <sys/mman.h>

#include <new>

namespace moetune {

Buffer::Buffer(int64_t bytes) {
  if (bytes <= 0) return;
  const auto length = static_cast<size_t>(bytes);
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  constexpr size_t kHugePage = size_t{2} << 20;
  // Only a wish: fewer address translations, the same result without.
  if (length >= kHugePage) madvise(memory, length, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace moetune
