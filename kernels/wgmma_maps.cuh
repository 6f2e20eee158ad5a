// Addressing by pointers, the GroupGEMM way: tensor maps that the loading warp of a block rewrites when its expert
// changes. With base addresses there is nothing to do.
#pragma once
#include "wgmma_shape.cuh"

namespace moetune {

template <class Config>
struct WgmmaMaps : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Shape::by_pointers, Shape::x_by_rows, Shape::w_by_rows, Shape::stages;
  using Tile = typename Shape::Tile;
  using Shared = typename Shape::Shared;

  // Of the expert at hand. A map in memory may still be read by copies that were issued with it. So `turns` of them take
  // turns: each change is followed by one copy at least, and when `stages` copies have been issued after one, a stage has
  // been filled and emptied since.
  static constexpr int turns = stages + 1;
  int expert = -1, turn = 0;
  const TensorMap *x = nullptr, *w = nullptr;

  // Called by all threads of the block, before it meets.
  static __device__ __forceinline__ void begin(const Args& args, Shared& shared) {
    if constexpr (by_pointers) {
      constexpr int pieces = sizeof(TensorMap) / sizeof(uint4);
      if (threadIdx.x < pieces) {
        reinterpret_cast<uint4*>(&shared.Shape::Maps::x)[threadIdx.x] = reinterpret_cast<const uint4*>(&args.x_map)[threadIdx.x];
        reinterpret_cast<uint4*>(&shared.Shape::Maps::w)[threadIdx.x] = reinterpret_cast<const uint4*>(&args.w_map)[threadIdx.x];
      }
    }
  }

  // Called by the whole warp that issues copies, once a tile. Rows then end where the expert ends.
  __device__ __forceinline__ void follow(const Args& args, Shared& shared, const Tile& tile) {
    if constexpr (by_pointers) {
      if (tile.expert == expert) return;
      expert = tile.expert;
      turn = turn == turns - 1 ? 0 : turn + 1;
      TensorMap* to = args.maps + (static_cast<long long>(blockIdx.x) * turns + turn) * 2;
      x = to;
      w = to + 1;
      if constexpr (!x_by_rows) {
        const unsigned map = shared_address(&shared.Shape::Maps::x);
        if (threadIdx.x % 32 == 0) {
          replace_address(map, tile.x);
          replace_rows(map, shared.m_sizes[expert]);
        }
        __syncwarp();
        publish_map(to, map);
        acquire_map(to);
      }
      if constexpr (!w_by_rows) {
        const unsigned map = shared_address(&shared.Shape::Maps::w);
        if (threadIdx.x % 32 == 0) replace_address(map, tile.w);
        __syncwarp();
        publish_map(to + 1, map);
        acquire_map(to + 1);
      }
    }
  }

  // The maps to copy by.
  __device__ __forceinline__ const TensorMap& x_map(const Args& args) const {
    if constexpr (by_pointers) return *x;
    return args.x_map;
  }
  __device__ __forceinline__ const TensorMap& w_map(const Args& args) const {
    if constexpr (by_pointers) return *w;
    return args.w_map;
  }
};

}  // namespace moetune
