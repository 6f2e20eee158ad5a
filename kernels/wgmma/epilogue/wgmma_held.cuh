// Held rows: for a few rows, switching memory from reads to writes takes longer than the writes. So a warpgroup may
// hold the staged rows of several tiles and store them together.
#pragma once
#include "wgmma/epilogue/wgmma_staging.cuh"

namespace moetune {

// Each tile is stored on its own.
template <class Block>
struct StoreEachTile {
  using Group = WgmmaWarpgroup<Block>;
  using Tile = Block::Tile;
  __forceinline__ void make_room(const auto&...) {}
  template <class Sum>
  __forceinline__ void store(const Group& group, const Tile& tile, const RowTargets<Block>& targets, const Sum& sum) {
    WgmmaStaging<Block>::store(group, tile, targets, sum);
  }
  __forceinline__ void finish(const Group&) { WgmmaStaging<Block>::finish(); }
};

// Rows are stored together when the next tile has no room beside them.
template <class Block>
struct HoldRows {
  using Tile = Block::Tile;
  using Group = WgmmaWarpgroup<Block>;
  using Staging = StagingOfColumns<Block>;
  int tiles = 0, rows = 0;  // held; rows in steps of kStoreRows

  // Before a tile is multiplied.
  __forceinline__ void make_room(const Group& group, const Tile& tile) {
    if (rows + round_up(tile.rows, kStoreRows) > Block::knobs.hold) finish(group);
  }
  template <class Sum>
  __forceinline__ void store(const Group& group, const Tile& tile, const RowTargets<Block>& targets, const Sum& sum) {
    if (tile.rows == 0) return;
#pragma unroll
    for (int row = 0; row < Block::block_m; row += kStoreRows) {
      if (row >= tile.rows) break;
      Staging::stage(targets, group.staging(), rows + row, row, sum);
    }
    if constexpr (Block::scatters)
      for (int r = threadIdx.x % 128; r < tile.rows; r += 128) held(group).target[rows + r] = targets.row[r];
    if (threadIdx.x % 128 == 0) held(group).tiles[tiles] = {tile, rows};
    ++tiles;
    rows += round_up(tile.rows, kStoreRows);
  }
  // Stores all that is held.
  __forceinline__ void finish(const Group& group) {
    constexpr int chunks = Staging::shape.columns / 8;
    warpgroup_sync();  // all rows are staged
    for (int i = 0; i < tiles; ++i) {
      const auto& [tile, first] = held(group).tiles[i];
      const long long column = y_column<Block>(tile) + group.first_group * Staging::group_columns;
      for (int j = threadIdx.x % 128; j < tile.rows * chunks; j += 128) {
        const int r = j / chunks, c = j % chunks * 8;
        if (column + c < y_columns<Block>(group.block.args))
          copy_16_bytes(row_of_y<Block>(group.block.args, tile, held(group).target + first, r) + column + c,
                        group.staging() + Staging::Store::place(first + r, c));
      }
    }
    warpgroup_sync();  // the buffer may be written again
    *this = {};
  }

 private:
  using Held = HeldTiles<Tile, Block::knobs.hold / kStoreRows, Block::scatters ? Block::knobs.hold : 1>;
  static_assert(sizeof(Held) == Block::layout.held_bytes, "the layout has room for what is held");
  static __forceinline__ Held& held(const Group& group) {
    return group.block.template at<Held>(Block::layout.held)[group.consumer];
  }
};

}  // namespace moetune
