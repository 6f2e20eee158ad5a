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

/// Blocks are made of whole register tiles, and block_k of whole vectors of floats.
constexpr int kCpuTileRows = 8;
constexpr int kCpuTileColumns = 32;
constexpr int kCpuDepthStep = 16;

/// The most bytes of one thread's packed blocks.
constexpr int64_t kCpuScratchLimit = int64_t{64} << 20;
/// What they take: a block of A, one of B and one of sums, in floats.
int64_t cpu_scratch_bytes(const CpuKnobs& knobs);

}  // namespace moetune
