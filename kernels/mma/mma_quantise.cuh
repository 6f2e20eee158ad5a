// Stores a quantised Y in the mma variant: the warps beside each other in a tile find the largest of a row together.
#pragma once
#include "quantise.cuh"

namespace moetune {

template <class Kernel>
struct MmaQuantise {
  static constexpr int m_tiles = Kernel::warp_m / 16, vectors = Kernel::warp_n / 16;  // of eight columns of Y
  using Room = QuantisedTile<Kernel::block_m, Kernel::grid.n>;
  using Bytes = typename Choice<Kernel::problem.store_bytes == 16, uint4, uint2>::type;
  static_assert(sizeof(Room) == quantised_tile_bytes(Kernel::block_m, Kernel::grid.n),
                "the layout has room for a tile");

  static __forceinline__ void store(const Args& args, const Tile& tile, const typename Kernel::Accumulators& sum,
                                    Room& room, int m0, int n0) {
    const int thread = threadIdx.x, lane = threadIdx.x % 32;
    const int column = y_column<Kernel>(tile), row = m0 + lane / 4;
    const auto row_at = [&](int r) {
      return QuantisedRow<Kernel>{args, target_row<Kernel>(args, tile.row + r), column};
    };
    float y[m_tiles][2][vectors][2];
#pragma unroll
    for (int i = 0; i < m_tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = 0;
#pragma unroll
        for (int j = 0; j < vectors; ++j)
#pragma unroll
          for (int next = 0; next < 2; ++next) {
            const float joined[] = {sum[i][2 * j][half * 2 + next], sum[i][2 * j + 1][half * 2 + next]};
            y[i][half][j][next] = Kernel::Function::value(joined, {});
            most = fmaxf(most, fabsf(y[i][half][j][next]));
          }
        for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        if (lane % 4 == 0) room.most[n0 / Kernel::warp_n][row + i * 16 + half * 8] = most;
      }
    __syncthreads();
    find_scales<Kernel::threads, Kernel::grid.n>(room, thread, tile.rows, row_at);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < m_tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + i * 16 + half * 8;
        const float factor = room.factor[r];
#pragma unroll
        for (int j = 0; j < vectors; ++j)
          *reinterpret_cast<unsigned short*>(&room.row[r][n0 / 2 + j * 8 + lane % 4 * 2]) =
              static_cast<unsigned short>(pack_fp8(y[i][half][j][0] * factor, y[i][half][j][1] * factor));
      }
    __syncthreads();
    store_quantised<Kernel::threads, Bytes>(room, thread, tile.rows, static_cast<int>(y_columns<Kernel>(args)) - column,
                                            row_at);
  }
};

}  // namespace moetune
