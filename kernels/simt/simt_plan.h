// What the host and the simt kernel agree on.
#pragma once

namespace moetune {

/// A candidate of the variant.
struct SimtKnobs {
  int block_m = 0, block_n = 0, block_k = 0;
};

/// Each thread computes 4 x 4 elements.
constexpr int simt_threads(const SimtKnobs& k) { return k.block_m / 4 * (k.block_n / 4); }
/// fp32 elements from one row along k of a tile to the next: the pad spreads columns over the banks.
constexpr int simt_pitch(int block) { return block + 1; }
/// Bytes of static shared memory: the tiles of X and W; of a quantised Y also the largest of two halves of each row.
constexpr int simt_shared_bytes(const SimtKnobs& k, bool quantises) {
  return static_cast<int>(sizeof(float)) *
         (k.block_k * (simt_pitch(k.block_m) + simt_pitch(k.block_n)) + (quantises ? 2 * k.block_m : 0));
}

}  // namespace moetune
