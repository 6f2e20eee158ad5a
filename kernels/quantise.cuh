// A quantised Y: fp8 with a scale for each row and kScaleBlock columns, which are those of a tile.
#pragma once
#include "epilogue.cuh"
#include "scales.h"

namespace moetune {

// Two neighbours, `low` at the lower address. Past the largest value they stay there.
__forceinline__ unsigned pack_fp8(float low, float high) {
  unsigned short result;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}

// A row of Y in memory, from the tile's first column on.
template <class Config>
struct QuantisedRow {
  const Args& args;
  const long long row, column;

  template <class Bytes>
  __forceinline__ void store(int at, const Bytes& bytes) const {
    *reinterpret_cast<Bytes*>(static_cast<char*>(args.y) + row * y_columns<Config>(args) + column + at) = bytes;
  }
  __forceinline__ void store_scale(float most) const {
    args.y_scales[row * args.y_scale_row + column / kScaleBlock * args.y_scale_step] = most * (1 / kMaxFp8);
  }
};

// Once each warp has put its largest magnitudes in a QuantisedTile: the factors of its `rows` rows, and their scales.
// row_at(r) is the QuantisedRow of row r.
template <int threads, int warps, class Room, class RowAt>
__forceinline__ void find_scales(Room& room, int thread, int rows, const RowAt& row_at) {
  for (int r = thread; r < rows; r += threads) {
    float most = kMinLargest;
#pragma unroll
    for (int w = 0; w < warps; ++w) most = fmaxf(most, room.most[w][r]);
    room.factor[r] = __fdividef(kMaxFp8, most);
    row_at(r).store_scale(most);
  }
}
// Once it has the bytes of all rows: stores their first `columns`, some Bytes at a time.
template <int threads, class Bytes, class Room, class RowAt>
__forceinline__ void store_quantised(Room& room, int thread, int rows, int columns, const RowAt& row_at) {
  constexpr int pieces = kScaleBlock / static_cast<int>(sizeof(Bytes));
  for (int i = thread; i < rows * pieces; i += threads) {
    const int r = i / pieces, at = i % pieces * static_cast<int>(sizeof(Bytes));
    if (at < columns) row_at(r).store(at, *reinterpret_cast<Bytes*>(&room.row[r][at]));
  }
}

}  // namespace moetune
