// The wgmma variant's epilogue: sums of a warpgroup to rows of Y, by way of shared memory.
#pragma once
#include "wgmma_notes.cuh"

namespace moetune {

template <class Config>
struct WgmmaStore : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::block_m, Shape::block_n, Shape::groups, Shape::weighs, Shape::scatters, Shape::copies_out;
  using Shape::copies_boxes, Shape::copies_rows, Shape::pitch, Shape::buffer;
  using Shape::staged_rows, Shape::planes, Shape::plane, Shape::warpgroup_sync;
  using Shape::by_pointers, Shape::holds;
  using Rows = typename WgmmaNotes<Config>::Rows;
  using Tile = typename Shape::Tile;
  using Element = typename Shape::Element;
  using Shared = typename Shape::Shared;
  using Sums = typename Shape::Sums;

  // What a warpgroup holds: tiles, and their rows in steps of 16.
  struct Hold {
    int tiles = 0, rows = 0;
  };
  static __device__ __forceinline__ int steps_of_16(int rows) { return (rows + 15) / 16 * 16; }

  // `targets` of the tile's rows, where they scatter.
  static __device__ __forceinline__ Element* target_of(const Args& args, const Tile& tile, const int* targets, int row) {
    if constexpr (by_pointers && !scatters) return static_cast<Element*>(tile.y) + (tile.first + row) * args.n;
    const long long target = scatters ? targets[row] : tile.row + row;
    return static_cast<Element*>(args.y) + target * args.n;
  }

  static __device__ __forceinline__ void copy_16(Element* to, const Element* from) { *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from); }
  // Where 8 columns of a staged row lie.
  static __device__ __forceinline__ const Element* staged_at(const Element* staging, int row, int column) {
    if constexpr (copies_rows) return staging + row * pitch + column;
    return staging + column / 64 * plane + row * 64 + (column / 8 % 8 ^ row % 8) * 8;
  }

  template <int threads>
  static constexpr int rows_a_warp = staged_rows / (threads / 32);
  // Whether this thread issues copies: the first threads a box each, or the first lanes of every warp a row each.
  template <int threads>
  static __device__ __forceinline__ bool issues() {
    if constexpr (copies_rows) return threadIdx.x % 32 < rows_a_warp<threads>;
    return threadIdx.x % threads < staged_rows / 8 * planes;
  }

  // `columns` of staged rows to rows `row` and on of the tile, columns from `column`, by `threads` threads. If
  // that is chosen, boxes of 8 whole rows leave by tensor copies, or all rows by copies of their bytes, each issued by a
  // thread; others by 16 bytes a thread and turn.
  template <int threads>
  static __device__ __forceinline__ void store_rows(const Args& args, const Tile& tile, const int* targets, const Element* staging, int row, long long column,
                                                    int columns) {
    const int thread = threadIdx.x % threads;
    if constexpr (copies_rows) {
      if (issues<threads>()) {
        const int r = thread / 32 * rows_a_warp<threads> + thread % 32;
        const int bytes = static_cast<int>(min(static_cast<long long>(columns), args.n - column)) * 2;
        if (row + r < tile.rows && bytes > 0)
          store_bytes(target_of(args, tile, targets, row + r) + column, shared_address(staged_at(staging, r, 0)), bytes);
        stores_commit();
      }
      return;
    }
    int first = 0;  // of the rows that threads store
    if constexpr (copies_boxes) {
      const int boxes = min(staged_rows, tile.rows - row) / 8;
      if (thread < staged_rows / 8 * planes) {
        const int box = thread % (staged_rows / 8), part = thread / (staged_rows / 8);
        if (box < boxes && column + part * 64 < args.n)
          store_box(args.y_map, shared_address(staging + part * plane + box * 8 * 64), tile.row + row + box * 8, static_cast<int>(column) + part * 64);
        stores_commit();
      }
      first = boxes * 8;
    }
    constexpr int pieces = planes * 8, rows_a_turn = threads / pieces;
    const auto leaves = [&](int r) { return r >= first && row + r < tile.rows; };
    if constexpr (threads % pieces == 0) {
      const int r = thread / pieces, c = thread % pieces * 8;
      if (c >= columns || column + c >= args.n) return;
      Element* to = scatters ? nullptr : target_of(args, tile, targets, row + r) + column + c;
#pragma unroll
      for (int i = 0; i < staged_rows; i += rows_a_turn) {
        if (leaves(r + i)) {
          if (scatters) to = target_of(args, tile, targets, row + r + i) + column + c;
          copy_16(to, staged_at(staging, r + i, c));
        }
        if (!scatters) to += rows_a_turn * args.n;
      }
    } else {
#pragma unroll
      for (int i = thread; i < staged_rows * pieces; i += threads) {
        const int r = i / pieces, c = i % pieces * 8;
        if (leaves(r) && c < columns && column + c < args.n) copy_16(target_of(args, tile, targets, row + r) + column + c, staged_at(staging, r, c));
      }
    }
  }
  // Before a staging buffer is written again: the copies of it that this thread issued, but for the `newer` last, are over.
  template <int threads, int newer>
  static __device__ __forceinline__ void wait_for_copies() {
    if constexpr (copies_out)
      if (issues<threads>()) stores_wait_read<newer>();
  }

  // All that is held leaves.
  static __device__ __forceinline__ void store_held(const Args& args, Shared& shared, int consumer, int first_group, Hold& hold) {
    if constexpr (holds) {
      constexpr int pieces = planes * 8;
      warpgroup_sync();  // it is staged
      for (int i = 0; i < hold.tiles; ++i) {
        const auto& [tile, first] = shared.held[consumer].tiles[i];
        const long long column = tile.n + first_group * 64;
        for (int j = threadIdx.x % 128; j < tile.rows * pieces; j += 128) {
          const int r = j / pieces, c = j % pieces * 8;
          if (column + c < args.n)
            copy_16(target_of(args, tile, shared.held[consumer].target + first, r) + column + c, staged_at(shared.staging[consumer], first + r, c));
        }
      }
      warpgroup_sync();  // its room may be written
      hold = {};
    }
  }
  // Before a tile begins.
  static __device__ __forceinline__ void make_room(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, Hold& hold) {
    if constexpr (holds)
      if (hold.rows + steps_of_16(tile.rows) > staged_rows) store_held(args, shared, consumer, first_group, hold);
  }

  // 16 rows from `row` of the tile to row `to` of the staging and on. Swapped: sum[g][4 j ...] holds columns
  // 64 g + 16 warp + lane / 4 (and 8 on) of rows 8 j + lane % 4 * 2 (and 1 on).
  template <class Sum>
  static __device__ __forceinline__ void stage_swapped(const Rows& rows, Element* staging, int to, int row, const Sum& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    unsigned weights[2] = {};
    if constexpr (weighs)
      for (int i = 0; i < 2; ++i) weights[i] = *reinterpret_cast<const unsigned*>(rows.weight + row + i * 8 + lane % 4 * 2);
    sum.with([&](const auto& four) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const float4 d[2] = {four(g, row / 8), four(g, row / 8 + 1)};
        const auto two = [&](int i, int half) {
          return half == 0 ? finish_pair<Config>(d[i].x, d[i].y, weights[i]) : finish_pair<Config>(d[i].z, d[i].w, weights[i]);
        };
        const int r = to + lane / 16 * 8 + lane % 8, column = g * 64 + warp * 16 + lane / 8 % 2 * 8;
        stmatrix_x4<true>(shared_address(staged_at(staging, r, column)), two(0, 0), two(0, 1), two(1, 0), two(1, 1));
      }
    });
  }

  template <class Sum>
  static __device__ __forceinline__ void hold_swapped(Shared& shared, const Tile& tile, int consumer, const Rows& rows, Hold& hold, const Sum& sum) {
    if (tile.rows == 0) return;
    auto& held = shared.held[consumer];
#pragma unroll
    for (int row = 0; row < block_m; row += 16) {
      if (row >= tile.rows) break;
      stage_swapped(rows, shared.staging[consumer], hold.rows + row, row, sum);
    }
    if constexpr (scatters)
      for (int r = threadIdx.x % 128; r < tile.rows; r += 128) held.target[hold.rows + r] = rows.target[r];
    if (threadIdx.x % 128 == 0) held.tiles[hold.tiles] = {tile, hold.rows};
    ++hold.tiles;
    hold.rows += steps_of_16(tile.rows);
  }

  template <class Sum>
  static __device__ __forceinline__ void store_swapped(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, const Rows& rows,
                                                       const Sum& sum) {
    if constexpr (!copies_out) warpgroup_sync();  // the tile before has left the buffers
#pragma unroll
    for (int first = 0; first < block_m; first += staged_rows) {
      if (first >= tile.rows) break;
      // Two buffers in turn: a warp that passed the sync of one has read the other. Which of them the tile before used
      // last depends on its rows.
      Element* staging = shared.staging[consumer] + first / staged_rows % 2 * buffer;
      if constexpr (copies_out) {
        if (first == 0)
          wait_for_copies<128, 0>();
        else
          wait_for_copies<128, 1>();
        warpgroup_sync();
      }
#pragma unroll
      for (int r = 0; r < staged_rows && first + r < block_m; r += 16) stage_swapped(rows, staging, r, first + r, sum);
      if constexpr (copies_out) fence_async_shared();
      warpgroup_sync();
      store_rows<128>(args, tile, rows.target, staging, first, tile.n + first_group * 64, planes * 64);
    }
  }

  // Plain: sum[g][4 j ...] holds rows 64 g + 16 warp + lane / 4 (and 8 on) of columns 8 j + lane % 4 * 2 (and 1 on).
  template <class Sum>
  static __device__ __forceinline__ void store_plain(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, const Rows& rows,
                                                     const Sum& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Element* staging = shared.staging[consumer] + warp * buffer;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const int first = (first_group + g) * 64 + warp * 16;
      if (first >= tile.rows) break;
      unsigned weights[2] = {};
      if constexpr (weighs)
        for (int i = 0; i < 2; ++i) weights[i] = both(rows.weight[first + lane / 4 + i * 8]);
#pragma unroll
      for (int from = 0; from < block_n; from += 64) {
        wait_for_copies<32, 0>();
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 64 && from + c < block_n; c += 16) {
          sum.with([&](const auto& four) {
            const float4 d[2] = {four(g, (from + c) / 8), four(g, (from + c) / 8 + 1)};
            const auto two = [&](int i, int half) {
              return half == 0 ? finish_pair<Config>(d[i].x, d[i].y, weights[0]) : finish_pair<Config>(d[i].z, d[i].w, weights[1]);
            };
            const int row = lane / 8 % 2 * 8 + lane % 8, column = c + lane / 16 * 8;
            stmatrix_x4<false>(shared_address(staged_at(staging, row, column)), two(0, 0), two(0, 1), two(1, 0), two(1, 1));
          });
        }
        if constexpr (copies_out) fence_async_shared();
        __syncwarp();
        store_rows<32>(args, tile, rows.target, staging, first, tile.n + from, min(64, block_n - from));
      }
    }
  }

  // `sum` is one of WgmmaSplit's.
  template <class Sum>
  static __device__ __forceinline__ void store(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, const Rows& rows,
                                               Hold& hold, const Sum& sum) {
    if constexpr (holds)
      hold_swapped(shared, tile, consumer, rows, hold, sum);
    else if constexpr (Shape::swapped)
      store_swapped(args, shared, tile, consumer, first_group, rows, sum);
    else
      store_plain(args, shared, tile, consumer, first_group, rows, sum);
  }
};

}  // namespace moetune
