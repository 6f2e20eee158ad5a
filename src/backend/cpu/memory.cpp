// Mapping, unmapping, and the pattern that nobody has written over.
#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace moetune {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Buffer::Buffer(int64_t bytes) {
  if (bytes <= 0) return;
  const bool huge = bytes >= kHugePage;
  const auto length = static_cast<size_t>(bytes + (huge ? kHugePage : 0));  // room to align in; untouched it is free
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = {memory, Unmap{length}};
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  if (!huge) return;
  madvise(memory, length, MADV_HUGEPAGE);  // a hint: fewer address translations
  data_ += -reinterpret_cast<uintptr_t>(data_) % kHugePage;
}

void Buffer::Unmap::operator()(void* mapping) const { munmap(mapping, length); }

void Buffer::grow(int64_t bytes) {
  if (bytes_ < bytes) *this = Buffer((bytes + kHugePage - 1) / kHugePage * kHugePage);
}

void Output::reset(ThreadPool& pool) const {
  const int64_t bytes = memory_.bytes();
  pool.for_each((bytes + kHugePage - 1) / kHugePage, [&](int, int64_t piece) {
    auto* from = reinterpret_cast<uint16_t*>(memory_.data() + piece * kHugePage);
    std::fill_n(from, std::min(kHugePage, bytes - piece * kHugePage) / 2, kUnwritten);
  });
}

int64_t Output::written(const std::byte* guard) {
  const auto* halves = reinterpret_cast<const uint16_t*>(guard);
  int64_t count = 0;
  for (int64_t i = 0; i < kGuardBytes / 2; ++i) {
    const int changed = halves[i] ^ kUnwritten;
    count += ((changed & 0xff) != 0) + (changed >> 8 != 0);
  }
  return count;
}

}  // namespace moetune
