// The cpu variant: a blocked, packed, threaded grouped GEMM on the host. Its code is src/backend/cpu; here is what is
// legal, and the numbers that both sides must agree on.
#pragma once
#include <cstdint>

#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {

struct CpuKnobs {
  int block_m = 0, block_n = 0, block_k = 0, threads = 0;
};
CpuKnobs cpu_knobs(const Candidate& candidate);

/// Register tiles of every instruction set divide this one: blocks are made of whole tiles.
constexpr int kCpuTileRows = 8;
constexpr int kCpuTileColumns = 32;
/// Rows of a packed panel of A, in every instruction set.
constexpr int kCpuPanelRows = 16;
/// block_k is a multiple of this: whole vectors of the widest instruction set.
constexpr int kCpuDepthStep = 16;

/// Floats between rows of unpacked A, so that rows fall into different cache sets.
constexpr int kCpuRowPadding = 16;

/// An expert with at most this many rows of A streams B from memory: packing all of it would cost more than it saves.
constexpr int kCpuDirectRows = 16;
/// Depth that the direct path takes at a time, so that its rows of A stay in the second-level cache.
constexpr int kCpuDirectDepth = 4096;
/// The same where N is contiguous in B: the depth of its panels, which stay in the first-level cache.
constexpr int kCpuDirectStep = 16;

/// Packed B of one (expert, n-block) is kept over all of k, for the next block of rows, where it fits in this.
constexpr int64_t kCpuKeepBytes = int64_t{16} << 20;
/// The most bytes of one thread's packing buffers.
constexpr int64_t kCpuScratchLimit = int64_t{64} << 20;

/// Floats in one thread's scratch memory, part by part, in the order in which they lie there.
struct CpuScratch {
  int64_t b = 0;     // packed B: block_n columns over block_k, or over all of k where that is kept
  int64_t a = 0;     // rows of A as floats
  int64_t sums = 0;  // block of sums
  int64_t bytes() const { return (a + b + sums) * 4; }
};
/// Packed B is kept over all of an expert's k.
bool cpu_keeps_b(const CpuKnobs& knobs, int64_t k);
/// What experts with this k need.
CpuScratch cpu_scratch(const CpuKnobs& knobs, int64_t k);
/// What all experts of a product need. Where k is their number of rows and the product has no rows: enough for any.
CpuScratch cpu_scratch(const CpuKnobs& knobs, const Product& product);

}  // namespace moetune
