// Stores H beside Y: a tile's sums, rounded, from registers.
#pragma once
#include "tma_ptx.cuh"
#include "wgmma/epilogue/wgmma_sums.cuh"

namespace moetune {

template <class Block>
struct WgmmaH {
  using Tile = Block::Tile;
  using Group = WgmmaWarpgroup<Block>;
  using Result = Block::Result;
  static constexpr int vectors = Block::width / 8;

  template <class Sum>
  static __forceinline__ void store(const Group& group, const Tile& tile, const Sum& sum) {
    sum.with([&](const auto& four) {
#pragma unroll
      for (int g = 0; g < Block::groups; ++g) {
        const int m = (group.first_group + g) * kGroupRows + threadIdx.x % 128 / 32 * 16;
        if constexpr (Block::swapped)
          store_columns(group.block.args, tile, tile.column + m, [&](int v) { return four(g, v); });
        else if (m < tile.rows)
          store_rows(group.block.args, tile, m, [&](int v) { return four(g, v); });
      }
    });
  }

 private:
  // A warp's eight gates from `column` on, and their ups, of all rows. A thread has two rows of one column; of the
  // transposed 8 x 8 it has two columns of one row.
  template <class Four>
  static __forceinline__ void store_columns(const Args& args, const Tile& tile, long long column, const Four& four) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (v * 8 >= tile.rows) break;
      const float4 d = four(v);
      const unsigned gates = transposed_8x8(pack<Result>(d.x, d.y)), ups = transposed_8x8(pack<Result>(d.z, d.w));
      const int row = v * 8 + lane / 4;
      if (row < tile.rows) store_pairs_in_h<Block>(args, tile.row + row, column + lane % 4 * 2, gates, ups);
    }
  }

  // A warp's 16 rows from `m` on. Four lanes have eight neighbouring gates, and eight ups. Where these lie apart in H,
  // lanes exchange words of four such vectors, and each stores 16 bytes.
  template <class Four>
  static __forceinline__ void store_rows(const Args& args, const Tile& tile, int m, const Four& four) {
    const int lane = threadIdx.x % 32;
    constexpr int wide = Block::problem.interleaved ? 0 : vectors / 8 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = m + lane / 4 + half * 8, row = tile.row + r;
      const auto word = [&](int v) {
        const float4 d = four(v);
        return half == 0 ? pack<Result>(d.x, d.y) : pack<Result>(d.z, d.w);
      };
#pragma unroll
      for (int v = 0; v < wide; v += 8) {
        unsigned gates[4], ups[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) gates[i] = word(v + 2 * i), ups[i] = word(v + 2 * i + 1);
        transpose_words(gates);
        transpose_words(ups);
        const long long column = tile.column + (v + lane % 4 * 2) * 8;
        if (r >= tile.rows || column >= args.n) continue;
        Result* const h = place_in_h<Block>(args, row, column);
        *reinterpret_cast<uint4*>(h) = {gates[0], gates[1], gates[2], gates[3]};
        *reinterpret_cast<uint4*>(h + up_after_gate<Block>(args)) = {ups[0], ups[1], ups[2], ups[3]};
      }
#pragma unroll
      for (int v = wide; v < vectors; v += 2)
        if (r < tile.rows) store_pairs_in_h<Block>(args, row, tile.column + v * 8 + lane % 4 * 2, word(v), word(v + 1));
    }
  }
};

}  // namespace moetune
