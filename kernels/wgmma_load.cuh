// Filling one stage of the wgmma variant's ring: tensor copies, and rows by cp.async into the layout that tensor copies
// make. When a stage is filled, and with which tile, stands in wgmma.cuh.
#pragma once
#include "epilogue.cuh"
#include "wgmma_maps.cuh"

namespace moetune {

template <class Config>
struct WgmmaLoad : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::block_m, Shape::block_n, Shape::block_k, Shape::cluster, Shape::cluster_m, Shape::cluster_n;
  using Shape::x_by_rows, Shape::w_by_rows, Shape::halves, Shape::row_bytes, Shape::x_boxes, Shape::rests, Shape::at;
  using Shape::by_pointers, Shape::gathers, Shape::keeps, Shape::warpgroup_sync;
  using Tile = typename Shape::Tile;
  using Shared = typename Shape::Shared;
  using Maps = WgmmaMaps<Config>;

  // Rows of X are counted from its base, or with pointers from the expert's first; gathered rows always from the base.
  static constexpr bool own_rows = by_pointers && !Config::permute_x;
  static __device__ __forceinline__ int row_of(const Tile& tile) {
    if constexpr (own_rows) return tile.first;
    return tile.row;
  }
  static __device__ __forceinline__ const char* x_of(const Args& args, const Tile& tile) {
    if constexpr (own_rows) return static_cast<const char*>(tile.x);
    return static_cast<const char*>(args.x);
  }
  static __device__ __forceinline__ const char* w_of(const Args& args, const Tile& tile) {
    if constexpr (by_pointers) return static_cast<const char*>(tile.w);
    return static_cast<const char*>(args.w) + tile.expert * args.n * args.k * 2;
  }

  // How many boxes of each size bring a tile's rows of X.
  struct Boxes {
    int large, small;
  };
  static __device__ __forceinline__ Boxes boxes_of(const Tile& tile) {
    if constexpr (x_by_rows) return {0, 0};
    const int large = (tile.rows + Config::x_rest - 1) / Config::x_box;
    return {large, rests ? max(0, tile.rows - large * Config::x_box + Config::x_rest - 1) / Config::x_rest : 0};
  }

  // A box of X, of columns from k. Only what is kept has a policy: SMs of a GPC that ask for the same lines within some 500
  // cycles have up to four of their requests merged before L2, but none of those with the policy evict_normal (H200; Mixtral
  // down, 4096 tokens: 8.1 to 6.5 GB from L2, 1.7 to 2.5 % of the time).
  static __device__ __forceinline__ void load_x(unsigned to, const TensorMap& map, unsigned full, const Tile& tile, int row, int k) {
    if constexpr (keeps)
      if (k < tile.kept) return load_box(to, map, full, row, k, policy_to_keep());
    load_box(to, map, full, row, k);
  }

  // Tensor copies of one stage, `boxes` of X: of X, of W, or of both. W comes first or with X: it makes the stage expect
  // all. Of what the blocks of a cluster share each loads a part, for all.
  template <bool x_too, bool w_too>
  static __device__ __forceinline__ void copy_boxes(const Args& args, Shared& shared, const Maps& maps, const Tile& tile, Boxes boxes, int stage, int k,
                                                    int rank) {
    const unsigned full = at(shared.full, stage);
    constexpr unsigned short everyone = (1 << cluster) - 1;
    if constexpr (w_too) barrier_arrive_expect(full, ((w_by_rows ? 0 : block_n) + boxes.large * Config::x_box + boxes.small * Config::x_rest) * block_k * 2);
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      if constexpr (!w_by_rows && w_too) {
        const unsigned w = shared_address(shared.w[stage]) + half * block_n * row_bytes;
        const int w_row = by_pointers ? tile.n : tile.expert * static_cast<int>(args.n) + tile.n;
        if constexpr (cluster_m > 1)
          load_box_to_all(w + rank * (block_n / 2) * row_bytes, maps.w_map(args), full, w_row + rank * (block_n / 2), k + half * 64, everyone);
        else
          load_box(w, maps.w_map(args), full, w_row, k + half * 64);
      }
      if constexpr (!x_by_rows && x_too) {
        const unsigned x = shared_address(shared.x[stage]) + half * block_m * row_bytes;
#pragma unroll
        for (int box = 0; box < x_boxes; ++box) {
          if (box >= boxes.large) break;
          const unsigned to = x + box * Config::x_box * row_bytes;
          const int row = row_of(tile) + box * Config::x_box;
          if constexpr (cluster_n > 1) {
            if (box % 2 == rank) load_box_to_all(to, maps.x_map(args), full, row, k + half * 64, everyone);
          } else {
            load_x(to, maps.x_map(args), full, tile, row, k + half * 64);
          }
        }
        if constexpr (rests) {
#pragma unroll
          for (int box = 0; box < Config::x_box / Config::x_rest - 1; ++box) {
            if (box >= boxes.small) break;
            const int row = boxes.large * Config::x_box + box * Config::x_rest;
            load_x(x + row * row_bytes, args.x_rest_map, full, tile, row_of(tile) + row, k + half * 64);
          }
        }
      }
    }
  }

  // By rows: every thread of the warpgroup copies one 16-byte chunk of every 16th row. What lies past the tile's rows or
  // past n is never stored, so that anything may be there; what lies past k must be zeros. One warp a scheduler issues
  // all of it, and each instruction beside a copy counts.
  struct Rows {
    static constexpr int count = x_by_rows ? block_m / 16 : 1;
    static constexpr int share = (block_m + 127) / 128;
    unsigned chunk[count];  // of X, where this thread's part of each row begins: 16 bytes, so that 64 GiB can be named
    int asked[share];       // numbers of the next tile's rows in X, this thread's share, on their way

    __device__ __forceinline__ void ask(const Args& args, const Tile& tile) {
      if constexpr (gathers) {
#pragma unroll
        for (int i = 0; i < share; ++i) {
          const int r = i * 128 + static_cast<int>(threadIdx.x);
          asked[i] = r < tile.rows ? static_cast<int>(source_row<Config>(args, tile.row + r)) : 0;
        }
      }
    }
    // Numbers go through shared memory, in two turns: a thread that is ahead by a tile writes beside what others read.
    __device__ __forceinline__ void give(Shared& shared, unsigned turn) {
      if constexpr (gathers) {
#pragma unroll
        for (int i = 0; i < share; ++i)
          if (i * 128 + static_cast<int>(threadIdx.x) < block_m) shared.gathered[turn % 2][i * 128 + threadIdx.x] = asked[i];
        warpgroup_sync();
      }
    }
    __device__ __forceinline__ void take(const Args& args, const Shared& shared, const Tile& tile, unsigned turn) {
      if constexpr (x_by_rows) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          const int r = static_cast<int>(threadIdx.x) / 8 + i * 16;
          int number = row_of(tile) + (r < tile.rows ? r : 0);
          if constexpr (gathers) number = shared.gathered[turn % 2][r];
          chunk[i] = static_cast<unsigned>(number) * static_cast<unsigned>(args.k / 8) + threadIdx.x % 8;
        }
      }
    }
  };
  static __device__ __forceinline__ void copy_x_rows(const Args& args, Shared& shared, const Tile& tile, const Rows& rows, int stage, int k) {
    const int first = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const unsigned x = shared_address(shared.x[stage]) + first * row_bytes + (chunk ^ first % 8) * 16;
    const char* from = x_of(args, tile) + k * 2;
    asm volatile("" : "+l"(from));  // one sum, of which a copy's address is one multiply-add away
    int count = tile.rows;
    asm volatile("" : "+r"(count));  // compared at each copy: predicates are too few to last
#pragma unroll
    for (int i = 0; i < Rows::count; ++i)
#pragma unroll
      for (int half = 0; half < halves; ++half)
        cp_async_below(i * 16, count, x + (half * block_m + i * 16) * row_bytes, from + rows.chunk[i] * 16ll + half * 128,
                       k + half * 64 + chunk * 8 < static_cast<int>(args.k));
  }

  // Rows of W follow each other: the address of this thread's first stands for all.
  static __device__ __forceinline__ const char* find_w(const Args& args, const Tile& tile) {
    const int first = threadIdx.x / 8, chunk = threadIdx.x % 8;
    return w_of(args, tile) + ((tile.n + first) * args.k + chunk * 8) * 2;
  }
  static __device__ __forceinline__ void copy_w_rows(const Args& args, Shared& shared, const Tile& tile, const char* row, int stage, int k) {
    const int first = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const unsigned w = shared_address(shared.w[stage]) + first * row_bytes + (chunk ^ first % 8) * 16;
    const int rows = static_cast<int>(args.n) - tile.n - first;
    const char* from = row + k * 2;
#pragma unroll
    for (int i = 0; i < block_n; i += 16) {
#pragma unroll
      for (int half = 0; half < halves; ++half)
        cp_async_below(i, rows, w + (half * block_n + i) * row_bytes, from + half * 128, k + half * 64 + chunk * 8 < args.k);
      from += args.k * 32;
      asm volatile("" : "+l"(from));  // one address after the other, as above
    }
  }
};

}  // namespace moetune
