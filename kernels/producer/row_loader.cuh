// The role of the loader where rows of X or W are copied with cp.async, into the layout that tensor copies make: all
// four warps of the producer load, the first also finds tiles. Each thread copies one 16-byte chunk of every 16th row.
// What lies past the tile's rows or past n is never stored, so that anything may be there; what lies past k must be
// zeros.
#pragma once
#include "epilogue.cuh"
#include "producer/block_tiles.cuh"
#include "producer/boxes.cuh"

namespace moetune {

__forceinline__ int first_row() { return threadIdx.x / 8; }
__forceinline__ int chunk_of_row() { return threadIdx.x % 8; }

// X is loaded by tensor copies.
template <class Block>
struct NoRowsOfX {
  static __forceinline__ long long row(const Block& block, const Block::Tile& tile, unsigned, int r) {
    return source_row<Block>(block.args, tile.row + r);
  }
  __forceinline__ void ask(const auto&...) {}
  __forceinline__ void give(const auto&...) {}
  __forceinline__ void take(const auto&...) {}
  __forceinline__ void copy(const auto&...) const {}
};

// A tile's rows of X. One warp on each of the SM's four schedulers issues all copies, so that each instruction beside a
// copy counts.
template <class Block>
struct RowsOfX {
  using Tile = Block::Tile;
  static constexpr int count = Block::block_m / 16;
  static constexpr int asked_count = (Block::block_m + 127) / 128;
  unsigned
      chunk[count];  // number of the 16 bytes of X where this thread's part of each row begins; 32 bits reach 64 GiB
  int asked[asked_count];  // row numbers in X of the next tile that this thread loads

  // Begins to load the row numbers of the next tile.
  __forceinline__ void ask(const Block& block, const Tile& tile) {
    if constexpr (Block::gathers) {
#pragma unroll
      for (int i = 0; i < asked_count; ++i) {
        const int r = i * 128 + static_cast<int>(threadIdx.x);
        asked[i] = r < tile.rows ? static_cast<int>(source_row<Block>(block.args, tile.row + r)) : 0;
      }
    }
  }
  // Passes them to the other threads through shared memory, in two alternating buffers: a thread that is a tile ahead
  // overwrites nothing that others still read.
  __forceinline__ void give(const Block& block, unsigned turn) {
    if constexpr (Block::gathers) {
#pragma unroll
      for (int i = 0; i < asked_count; ++i)
        if (i * 128 + static_cast<int>(threadIdx.x) < Block::block_m)
          gathered(block, turn)[i * 128 + threadIdx.x] = asked[i];
      warpgroup_sync();
    }
  }
  // Computes where this thread's chunk of each row begins.
  __forceinline__ void take(const Block& block, const Tile& tile, unsigned turn) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int r = static_cast<int>(threadIdx.x) / 8 + i * 16;
      int number = ExpertAddresses<Block>::x_row(tile) + (r < tile.rows ? r : 0);
      if constexpr (Block::gathers) number = gathered(block, turn)[r];
      chunk[i] = static_cast<unsigned>(number) * static_cast<unsigned>(block.args.k / Block::chunk) + threadIdx.x % 8;
    }
  }
  // Row `r` of the tile in memory.
  static __forceinline__ long long row(const Block& block, const Tile& tile, unsigned turn, int r) {
    return Block::gathers ? gathered(block, turn)[r] : tile.row + r;
  }
  __forceinline__ void copy(const Block& block, const Tile& tile, int stage, int k) const {
    const int first = first_row(), column = chunk_of_row();
    const unsigned x = shared_address(block.x()[stage]) + first * Block::row_bytes + (column ^ first % 8) * 16;
    const char* from = ExpertAddresses<Block>::x(block.args, tile) + bytes_of(k, Block::problem.x_memory_bits);
    asm volatile("" : "+l"(from));  // computed once: each copy's address is then one multiply-add
    int rows = tile.rows;
    asm volatile("" : "+r"(rows));  // compared again for each copy: predicate registers are few
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int half = 0; half < Block::halves; ++half)
        cp_async_below(i * 16, rows, x + (half * Block::block_m + i * 16) * Block::row_bytes,
                       from + chunk[i] * 16ll + half * 128,
                       k + half * Block::row_columns + column * Block::chunk < static_cast<int>(block.args.k));
  }

 private:
  static __forceinline__ int* gathered(const Block& block, unsigned turn) {
    return block.template at<int[Block::block_m]>(Block::layout.gathered)[turn % 2];
  }
};

// W is loaded by tensor copies.
template <class Block>
struct NoRowsOfW {
  __forceinline__ void find(const auto&...) {}
  __forceinline__ void copy(const auto&...) const {}
};

// A tile's rows of W. They are evenly spaced: the address of this thread's first is enough.
template <class Block>
struct RowsOfW {
  const char* row = nullptr;
  // In memory, from a row of this thread to its next, 16 columns on.
  static constexpr int rows_a_turn = Block::Function::columns_per_output > 1 && !Block::problem.interleaved ? 8 : 16;

  __forceinline__ void find(const Block& block, const Block::Tile& tile) {
    const Args& args = block.args;
    row = ExpertAddresses<Block>::w(args, tile) + chunk_of_row() * 16 +
          bytes_of(w_row<Block>(args, tile.column + first_row()) * args.k, Block::problem.w_memory_bits);
  }
  __forceinline__ void copy(const Block& block, const Block::Tile& tile, int stage, int k) const {
    const Args& args = block.args;
    const int first = first_row(), column = chunk_of_row();
    const unsigned w = shared_address(block.w()[stage]) + first * Block::row_bytes + (column ^ first % 8) * 16;
    const int rows = static_cast<int>(args.n) - tile.column - first;
    const char* from = row + bytes_of(k, Block::problem.w_memory_bits);
#pragma unroll
    for (int i = 0; i < Block::block_n; i += 16) {
#pragma unroll
      for (int half = 0; half < Block::halves; ++half)
        cp_async_below(i, rows, w + (half * Block::block_n + i) * Block::row_bytes, from + half * 128,
                       k + half * Block::row_columns + column * Block::chunk < args.k);
      from += bytes_of(args.k * rows_a_turn, Block::problem.w_memory_bits);
      asm volatile("" : "+l"(from));  // computed one after the other, not all in advance
    }
  }
};

template <class Block>
struct RowLoader {
  using Tile = Block::Tile;
  using Tiles = BlockTiles<Block>;

  // The producer asks for the next tile this many steps before a tile ends: its row numbers come from memory.
  static constexpr int ahead = 2;

  // All threads of the producer call it.
  static __forceinline__ void run(const Block& block) {
    const int rank = Block::rank();
    typename Block::Slot slot;
    const auto begin = [&] { return threadIdx.x < 32 ? Tiles::find(block, slot) : Tiles::take(block, slot); };
    typename Block::Stage stage;
    ExpertAddresses<Block> addresses;
    BlockPace<Block> pace;
    typename Choice<Block::x_by_rows, RowsOfX<Block>, NoRowsOfX<Block>>::type x;
    typename Choice<Block::w_by_rows, RowsOfW<Block>, NoRowsOfW<Block>>::type w;
    typename Block::X::Scales::template Loader<Block, 128> x_scales;
    typename Block::W::Scales::template Loader<Block, 128> w_scales;
    Tile next = begin();
    block.pdl_wait_for_x();
    x.ask(block, next);
    for (unsigned turn = 0; next.expert >= 0; ++turn) {
      const Tile tile = next;
      const Steps steps = block.steps_of(tile);
      if constexpr (Block::by_boxes)
        if (threadIdx.x < 32) addresses.follow(block, tile);
      const StageBoxes<Block> boxes(block, addresses, tile, rank);
      x.give(block, turn);
      x.take(block, tile, turn);
      w.find(block, tile);
      const auto row_of_x = [&](int r) { return x.row(block, tile, turn, r); };
      x_scales.begin(block, tile, steps, row_of_x);
      w_scales.begin(block, tile, steps, row_of_x);
      if (threadIdx.x == 0) pace.begin(block.args, tile);
#pragma unroll 1
      for (int k = steps.first; k < steps.end; ++k, stage.advance()) {
        if (k == max(steps.first, steps.end - ahead)) {
          next = begin();
          x.ask(block, next);
          x.take(block, tile, turn);  // again, because registers are few while a tile is found
        }
        barrier_wait(block.empty(stage.index), stage.parity ^ 1);
        if constexpr (Block::by_boxes)
          if (threadIdx.x == 0) boxes.template issue<true, true>(stage.index, k * Block::block_k);
        w.copy(block, tile, stage.index, k * Block::block_k);
        x.copy(block, tile, stage.index, k * Block::block_k);
        w_scales.copy(block, tile, stage.index, k * Block::block_k);
        x_scales.copy(block, tile, stage.index, k * Block::block_k);
        // Without the shuffle the assembler loops over the lanes' addresses.
        barrier_arrive_after_copies(__shfl_sync(~0u, block.full(stage.index), 0));
      }
      __syncwarp();
    }
    if (threadIdx.x < 32) Tiles::finish_finding(block);
    if (threadIdx.x == 0) Tiles::finish_loading(block);
  }
};

}  // namespace moetune
