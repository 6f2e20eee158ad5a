// The cpu variant: a blocked, packed, threaded grouped GEMM on the host. Its code is src/backend/cpu; here is what is
// legal, and the numbers that both sides must agree on.
#pragma once
#include <cstdint>

#include "variant/variant.h"

namespace moetune {

struct CpuKnobs {
  int block_m = 0, block_n = 0, block_k = 0, threads = 0;
};
CpuKnobs cpu_knobs(const Candidate& candidate);

/// Register tiles of every instruction set divide this one: blocks are made of whole tiles.
constexpr int kCpuTileRows = 8;
constexpr int kCpuTileColumns = 32;
/// block_k is a multiple of this: whole vectors of the widest instruction set.
constexpr int kCpuDepthStep = 16;

/// Floats between rows of unpacked X: keeps rows out of the same cache sets.
constexpr int kCpuRowPadding = 16;

/// An expert with at most this many rows streams W straight from memory: packing would cost more than it saves.
constexpr int kCpuDirectRows = 16;
/// Depth that the direct path takes at a time, so that its rows of X stay in the second-level cache.
constexpr int kCpuDirectDepth = 4096;

/// Packed W of one (expert, n-block) is kept over all of k, for the next block of rows, where it fits in this.
constexpr int64_t kCpuKeepBytes = int64_t{16} << 20;
/// What one thread may hold in packing buffers.
constexpr int64_t kCpuScratchLimit = int64_t{64} << 20;

/// Floats in one thread's scratch memory, part by part, in the order in which they lie there.
struct CpuScratch {
  int64_t w = 0;         // packed W: block_n columns over block_k, or over all of k where that is kept
  int64_t x = 0;         // rows of X as floats
  int64_t sums = 0;      // block of sums
  bool keeps_w = false;  // packed W is kept over all of k
  int64_t bytes() const { return (w + x + sums) * 4; }
};
CpuScratch cpu_scratch(const CpuKnobs& knobs, int64_t k);

Variant cpu_variant();

}  // namespace moetune
