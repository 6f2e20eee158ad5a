// Tensor copies of one stage: boxes of W and X.
#pragma once
#include "producer/addresses.cuh"
#include "producer/rounds.cuh"

namespace moetune {

template <class Block>
struct StageBoxes {
  using Tile = Block::Tile;
  using Addresses = ExpertAddresses<Block>;
  static constexpr BoxRows rows = x_boxes(Block::knobs, Block::problem);
  static constexpr bool small_ones = Block::knobs.tma_x && !Block::x_mn_major && rows.small < rows.large;
  static_assert((Block::x_mn_major || Block::block_m % rows.small == 0) && rows.large % rows.small == 0 &&
                    rows.small % 8 == 0,
                "boxes of X are whole groups of the swizzle");

  const Block& block;
  const Addresses& addresses;
  const Tile& tile;
  int rank;          // in the cluster
  int large, small;  // boxes of each size that cover the tile's rows of X

  __forceinline__ StageBoxes(const Block& b, const Addresses& a, const Tile& t, int rank_in_cluster)
      : block(b), addresses(a), tile(t), rank(rank_in_cluster), large(0), small(0) {
    if constexpr (Block::knobs.tma_x && !Block::x_mn_major) {
      const BoxRows count = count_boxes(rows, tile.rows);
      large = count.large;
      if constexpr (small_ones) small = count.small;
    }
  }

  static __forceinline__ void prefetch(const Args& args) {
    if constexpr (small_ones) prefetch_map(args.x_rest_map);
  }

  // Copies block_k columns from `k` of X, of W, or of both to a stage. W must come first or with X: it makes the
  // stage's full barrier expect the bytes of both. What the blocks of a cluster share is loaded once: each loads half
  // for both.
  template <bool with_x, bool with_w>
  __forceinline__ void issue(int stage, int k) const {
    const unsigned full = block.full(stage);
    constexpr int w_rows = Block::w_by_rows ? 0 : Block::block_n, x_rows = Block::x_mn_major ? Block::block_m : 0;
    int w_bytes = bytes_of(w_rows * Block::block_k, Block::problem.w_memory_bits);
    if constexpr (Block::w_in_registers) w_bytes = w_blocks_down() * Block::halves * Block::problem.w_block_bytes;
    constexpr int x_row_bytes = bytes_of(Block::block_k, Block::problem.x_memory_bits);
    if constexpr (with_w)
      barrier_arrive_expect(full, w_bytes + (x_rows + large * rows.large + small * rows.small) * x_row_bytes);
    if constexpr (with_w && Block::w_in_registers) load_w_blocks(stage, full, k);
    if constexpr (with_w && Block::w_mn_major && !Block::sums_rows) load_w_mn_major(stage, full, k);
    if constexpr (Block::sums_rows) {
      const int m_first = tile.row - tile.expert * static_cast<int>(block.args.m);
      if constexpr (with_w)
        load_rows<Block::block_n, (Block::cluster_m > 1)>(block.w()[stage], addresses.w_map(block.args), full,
                                                          tile.column, k);
      if constexpr (with_x)
        load_rows<Block::block_m, (Block::cluster_n > 1)>(block.x()[stage], addresses.x_map(block.args), full, m_first,
                                                          k);
    }
#pragma unroll
    for (int half = 0; half < Block::halves; ++half) {
      if constexpr (with_w && !Block::w_by_rows && !Block::w_mn_major && !Block::w_in_registers)
        load_w(stage, full, half, k);
      if constexpr (with_x && !Block::x_by_rows && !Block::x_mn_major) load_x(stage, full, half, k);
    }
  }

 private:
  // Of a reordered W: blocks down the tile, less those past the expert's last. A block of a cluster may lie past n.
  __forceinline__ int w_blocks_down() const {
    const auto left = static_cast<int>(reordered_down(block.args.n)) - tile.column / kReorderedRows;
    return left < 0 ? 0 : left < Block::block_n / kReorderedRows ? left : Block::block_n / kReorderedRows;
  }
  __forceinline__ void load_w_blocks(int stage, unsigned full, int k) const {
    constexpr int bytes = Block::problem.w_block_bytes;
    const long long across = reordered_across(block.args.k);
    const char* from =
        Addresses::w(block.args, tile) + (tile.column / kReorderedRows * across + k / kReorderedColumns) * bytes;
#pragma unroll 1
    for (int i = 0; i < w_blocks_down(); ++i, from += across * bytes)
      load_bytes(shared_address(block.w_block(stage, i, 0)), from, Block::halves * bytes, full);
  }

  __forceinline__ void load_w(int stage, unsigned full, int half, int k) const {
    const unsigned w = shared_address(block.w()[stage]) + half * Block::block_n * Block::row_bytes;
    constexpr int part = w_box(Block::knobs, Block::problem);
    if constexpr (Block::Function::columns_per_output > 1) return load_gates(w, full, k + half * Block::row_columns);
    const int row = Addresses::w_row(block.args, tile);
    const int mine = Block::cluster_m > 1 ? rank * part : 0;
    load_box<Block::cluster_m>(w + mine * Block::row_bytes, addresses.w_map(block.args), full, row + mine,
                               k + half * Block::row_columns);
  }

  __forceinline__ void load_gates(unsigned w, unsigned full, int k) const {
    constexpr int part = w_box(Block::knobs, Block::problem);
    const int mine = Block::cluster_m > 1 ? rank * part : 0;
    load_gates_and_ups<Block::cluster_m>(Addresses::w_matrix(tile), w + mine * Block::row_bytes,
                                         addresses.w_map(block.args), full, tile.column / 16 + mine / 16, k);
  }

  // Planes of Block::row_columns, in which each row is a step along k.
  __forceinline__ void load_w_mn_major(int stage, unsigned full, int k) const {
    const unsigned w = shared_address(block.w()[stage]);
    constexpr int planes = Block::block_n / Block::row_columns / Block::cluster_m;
#pragma unroll
    for (int i = 0; i < planes; ++i) {
      const int plane = Block::cluster_m > 1 ? rank * planes + i : i;
      const unsigned to = w + plane * Block::block_k * Block::row_bytes;
      load_box_of<Block::cluster_m>(Addresses::w_matrix(tile), to, addresses.w_map(block.args), full, k,
                                    tile.column + plane * Block::row_columns);
    }
  }

  // Rows that the tile sums over, in planes of row_columns from `first` on. Of what a cluster shares each block
  // loads half of the rows.
  template <int columns, bool shared>
  __forceinline__ void load_rows(const void* stage, const TensorMap& map, unsigned full, int first, int k) const {
    const int row = shared ? rank * (Block::block_k / 2) : 0;
#pragma unroll
    for (int i = 0; i < columns / Block::row_columns; ++i) {
      const unsigned to = shared_address(stage) + (i * Block::block_k + row) * Block::row_bytes;
      load_box_of_rows<shared ? 2 : 1>(tile.first_row, tile.depth, to, map, full, k + row,
                                       first + i * Block::row_columns);
    }
  }

  __forceinline__ void load_x(int stage, unsigned full, int half, int k) const {
    const unsigned x = shared_address(block.x()[stage]) + half * Block::block_m * Block::row_bytes;
    const int first = Addresses::x_row(tile);
#pragma unroll
    for (int box = 0; box < (Block::block_m + rows.small - 1) / rows.large; ++box) {
      if (box >= large) break;
      const unsigned to = x + box * rows.large * Block::row_bytes;
      const int row = first + box * rows.large;
      if constexpr (Block::cluster_n > 1) {
        if (box % 2 == rank) load_box<2>(to, addresses.x_map(block.args), full, row, k + half * Block::row_columns);
      } else {
        KeptXOf<Block>::load(to, addresses.x_map(block.args), full, tile, row, k + half * Block::row_columns);
      }
    }
    if constexpr (small_ones) {
#pragma unroll
      for (int box = 0; box < rows.large / rows.small - 1; ++box) {
        if (box >= small) break;
        const int row = large * rows.large + box * rows.small;
        KeptXOf<Block>::load(x + row * Block::row_bytes, block.args.x_rest_map, full, tile, first + row,
                             k + half * Block::row_columns);
      }
    }
  }
};

}  // namespace moetune
