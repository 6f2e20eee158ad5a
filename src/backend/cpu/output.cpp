// Filling and looking at guard zones.
#include "backend/cpu/output.h"

#include <algorithm>

namespace moetune {
namespace {

constexpr std::byte kPattern[] = {std::byte{kUnwritten & 0xff}, std::byte{kUnwritten >> 8}};

}  // namespace

void Output::reset(ThreadPool& pool) const {
  constexpr int64_t kTogether = int64_t{1} << 20;
  const int64_t bytes = memory_.bytes();
  pool.for_each((bytes + kTogether - 1) / kTogether, [&](int, int64_t piece) {
    auto* from = reinterpret_cast<uint16_t*>(memory_.data() + piece * kTogether);
    std::fill_n(from, std::min(kTogether, bytes - piece * kTogether) / 2, kUnwritten);
  });
}

int64_t Output::written(const std::byte* guard) {
  int64_t count = 0;
  for (int64_t i = 0; i < kGuardBytes; ++i) count += guard[i] != kPattern[i % 2];
  return count;
}

}  // namespace moetune
