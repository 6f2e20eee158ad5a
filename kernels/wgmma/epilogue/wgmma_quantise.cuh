// Stores a quantised Y in the wgmma variant.
#pragma once
#include "quantise.cuh"
#include "wgmma/epilogue/wgmma_direct.cuh"
#include "wgmma/epilogue/wgmma_sums.cuh"

namespace moetune {

// Row `row` of the tile.
template <class Block>
__forceinline__ QuantisedRow<Block> quantised_row(const Args& args, const typename Block::Tile& tile,
                                                  const RowTargets<Block>& targets, int row) {
  return {args, Block::scatters ? targets.row[row] : tile.row + row, y_column<Block>(tile)};
}

// Tiles that aren't swapped: each warp has whole rows. Four lanes have a row: lane q of them columns 8 j + 2 q and the
// next, j < 16. Words of four such elements, of j = 2 c and 2 c + 1, change lanes so that each has 16 neighbours.
template <class Block>
struct QuantisedRows {
  static constexpr int columns = kScaleBlock;

  template <class Sum>
  static __forceinline__ void store(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile,
                                    const RowTargets<Block>& targets, const Sum& sum) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int g = 0; g < Block::groups; ++g) {
      const int first = (group.first_group + g) * kGroupRows + threadIdx.x % 128 / 32 * 16;
      if (first >= tile.rows) break;
      float y[2][columns / 4];  // of rows lane / 4 and 8 on
      sum.with([&](const auto& four) {
#pragma unroll
        for (int j = 0; j < columns / 8; ++j) {
          const float4 gate = four(g, 2 * j), up = four(g, 2 * j + 1);
          const float x[] = {gate.x, up.x, gate.y, up.y}, z[] = {gate.z, up.z, gate.w, up.w};
          y[0][2 * j] = Block::Function::value(x, {}), y[0][2 * j + 1] = Block::Function::value(x + 2, {});
          y[1][2 * j] = Block::Function::value(z, {}), y[1][2 * j + 1] = Block::Function::value(z + 2, {});
        }
      });
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = kMinLargest;
#pragma unroll
        for (int i = 0; i < columns / 4; ++i) most = fmaxf(most, fabsf(y[half][i]));
        for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        const float factor = __fdividef(kMaxFp8, most);
        const int r = first + lane / 4 + half * 8;
        const bool inside = r < tile.rows;
        const auto row = quantised_row<Block>(group.block.args, tile, targets, inside ? r : first);
#pragma unroll
        for (int from = 0; from < columns / 16; from += 4) {
          unsigned word[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* const v = y[half] + (from + i) * 4;
            word[i] = pack_fp8(v[0] * factor, v[1] * factor) | pack_fp8(v[2] * factor, v[3] * factor) << 16;
          }
          transpose_words(word);
          const uint4 bytes = {__byte_perm(word[0], word[1], 0x5410), __byte_perm(word[2], word[3], 0x5410),
                               __byte_perm(word[0], word[1], 0x7632), __byte_perm(word[2], word[3], 0x7632)};
          if (inside) row.store((from + lane % 4) * 16, bytes);
        }
        if (inside && lane % 4 == 0) row.store_scale(most);
      }
    }
  }
  static __forceinline__ void finish() {}
};

// Swapped tiles: sum[g][4 j ...] has gates (x, y) and their ups (z, w) of column 32 g + 8 warp + lane / 4 and rows 8 j
// + lane % 4 * 2 and the next. All warps that share the tile have each row, and find its largest in shared memory.
template <class Block>
struct QuantisedColumns {
  static constexpr int threads = 128 * warpgroups_a_tile(Block::knobs), vectors = Block::width / 8;
  using Room = QuantisedTile<Block::block_m, threads / 32>;
  static_assert(!Block::swapped || sizeof(Room) == quantised_bytes(Block::knobs), "the layout has room for a tile");

  template <class Sum>
  static __forceinline__ void store(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile,
                                    const RowTargets<Block>& targets, const Sum& sum) {
    if (tile.rows == 0) return;
    const int set = Block::alternates ? group.consumer : 0, lane = threadIdx.x % 32, pair = lane % 4 * 2;
    const int thread = static_cast<int>(threadIdx.x) - 128 * (1 + set), warp = thread / 32;
    Room& room = group.block.template at<Room>(Block::layout.staging)[set];
    const auto sync = [&] { named_sync(kTileBarrier + set, threads); };
    float y[Block::groups][vectors][2];
    sum.with([&](const auto& four) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        float most[2] = {};
#pragma unroll
        for (int g = 0; g < Block::groups; ++g) {
          const float4 d = four(g, v);
          const float low[] = {d.x, d.z}, high[] = {d.y, d.w};
          y[g][v][0] = Block::Function::value(low, {}), y[g][v][1] = Block::Function::value(high, {});
          for (int i = 0; i < 2; ++i) most[i] = fmaxf(most[i], fabsf(y[g][v][i]));
        }
        for (int step = 4; step < 32; step *= 2)
          for (int i = 0; i < 2; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], step));
        if (lane < 4) *reinterpret_cast<float2*>(&room.most[warp][v * 8 + pair]) = make_float2(most[0], most[1]);
      }
    });
    sync();
    const auto row_at = [&](int r) { return quantised_row<Block>(group.block.args, tile, targets, r); };
    find_scales<threads, threads / 32>(room, thread, tile.rows, row_at);
    sync();
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (v * 8 >= tile.rows) break;
      const float2 factor = *reinterpret_cast<const float2*>(&room.factor[v * 8 + pair]);
#pragma unroll
      for (int g = 0; g < Block::groups; ++g) {
        const int column = (group.first_group + g) * (kGroupRows / 2) + warp % 4 * 8 + lane / 4;
        const unsigned two = pack_fp8(y[g][v][0] * factor.x, y[g][v][1] * factor.y);
        room.row[v * 8 + pair][column] = static_cast<unsigned char>(two);
        room.row[v * 8 + pair + 1][column] = static_cast<unsigned char>(two >> 8);
      }
    }
    sync();
    store_quantised<threads, uint4>(room, thread, tile.rows, kScaleBlock, row_at);
  }
  static __forceinline__ void finish() {}
};

template <class Block>
using WgmmaQuantise = typename Choice<Block::swapped, QuantisedColumns<Block>, QuantisedRows<Block>>::type;

}  // namespace moetune
