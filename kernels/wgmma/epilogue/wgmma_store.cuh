// Stores staged rows of Y: by threads, by tensor copies of boxes, or by copies of whole rows. Each policy also says how
// rows lie in the staging buffer, and when that may be written again.
#pragma once
#include "producer/addresses.cuh"
#include "producer/targets.cuh"

namespace moetune {

template <class Element>
__forceinline__ void copy_16_bytes(Element* to, const Element* from) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

// Row `row` of the tile in Y.
template <class Block, class Tile>
__forceinline__ typename Block::Result* row_of_y(const Args& args, const Tile& tile, const int* targets, int row) {
  if constexpr (!Block::scatters) return ExpertAddresses<Block>::y(args, tile, row);
  const long long target = targets[row];
  return static_cast<typename Block::Result*>(args.y) + target * y_columns<Block>(args);
}

// Each policy's store() stores `columns` columns of the staged rows in the tile's rows from `row` on, from column
// `column` of Y on; scattered rows in `targets`.

// Threads store 16 bytes each, a few rows at a time.
template <class Block>
struct ThreadStores {
  using Element = Block::Result;
  static constexpr Staging shape = Block::staging_shape;

  static __forceinline__ void prefetch(const auto&...) {}
  // The element of the staging buffer where 8 columns of a staged row begin: planes in the swizzle of tensor copies.
  static __forceinline__ unsigned place(unsigned row, unsigned column) {
    return column / kSwizzleColumns * shape.plane + row * kSwizzleColumns + (column / 8 % 8 ^ row % 8) * 8;
  }
  // Before a warpgroup stages a tile: waits until the rows of the tile before are read from the buffer.
  static __forceinline__ void begin_tile() { warpgroup_sync(); }
  // Before `threads` threads write a staging buffer again: waits for all but the last `newer` copies that read it.
  template <int threads, int newer>
  static __forceinline__ void wait() {}
  // Before a warpgroup stages the rows of a tile from `first` on, into one of two buffers.
  static __forceinline__ void begin_buffer(int) {}
  // After the buffer is written.
  static __forceinline__ void publish() {}

  // Stores the rows, by `threads` threads.
  template <int threads>
  static __forceinline__ void store(const Args& args, const Block::Tile& tile, const int* targets,
                                    const Element* staging, int row, long long column, int columns) {
    const int thread = threadIdx.x % threads;
    constexpr int chunks = shape.planes * 8, rows_a_turn = threads / chunks;
    const auto leaves = [&](int r) { return row + r < tile.rows; };
    if constexpr (threads % chunks == 0) {
      const int r = thread / chunks, c = thread % chunks * 8;
      if (c >= columns || column + c >= y_columns<Block>(args)) return;
      Element* to = Block::scatters ? nullptr : row_of_y<Block>(args, tile, targets, row + r) + column + c;
#pragma unroll
      for (int i = 0; i < shape.rows; i += rows_a_turn) {
        if (leaves(r + i)) {
          if (Block::scatters) to = row_of_y<Block>(args, tile, targets, row + r + i) + column + c;
          copy_16_bytes(to, staging + place(r + i, c));
        }
        if (!Block::scatters) to += rows_a_turn * y_columns<Block>(args);
      }
    } else {
#pragma unroll
      for (int i = thread; i < shape.rows * chunks; i += threads) {
        const int r = i / chunks, c = i % chunks * 8;
        if (leaves(r) && c < columns && column + c < y_columns<Block>(args))
          copy_16_bytes(row_of_y<Block>(args, tile, targets, row + r) + column + c, staging + place(r, c));
      }
    }
  }
};

// For both kinds of copies: threads that issued copies wait for them before the staging buffer is written again.
template <class Kind>
struct CopyStores {
  static __forceinline__ void begin_tile() {}
  template <int threads, int newer>
  static __forceinline__ void wait() {
    if (Kind::template issues<threads>()) stores_wait_read<newer>();
  }
  // The two buffers are used in turn, so that the other buffer's copies may go on. Not where a tile begins: which
  // buffer the tile before used last depends on its rows.
  static __forceinline__ void begin_buffer(int first) {
    if (first == 0)
      wait<128, 0>();
    else
      wait<128, 1>();
    warpgroup_sync();
  }
  static __forceinline__ void publish() { fence_async_shared(); }
};

// Tensor copies of y_box rows, issued by one thread each, store a warpgroup's part of a tile. They go on while the next
// tile is multiplied.
template <class Block>
struct BoxStores : CopyStores<BoxStores<Block>> {
  using Element = Block::Result;
  static constexpr Staging shape = Block::staging_shape;
  static constexpr int box = y_box(Block::knobs), boxes_a_plane = shape.rows / box;

  static __forceinline__ void prefetch(const Args& args) { prefetch_map(args.y_map); }
  static __forceinline__ unsigned place(unsigned row, unsigned column) {
    return ThreadStores<Block>::place(row, column);
  }
  // Whether this thread issues copies: the first ones a box each.
  template <int threads>
  static __forceinline__ bool issues() {
    return threadIdx.x % threads < boxes_a_plane * shape.planes;
  }
  template <int threads>
  static __forceinline__ void store(const Args& args, const Block::Tile& tile, const int*, const Element* staging,
                                    int row, long long column, int) {
    if (!issues<threads>()) return;
    const int thread = threadIdx.x % threads, plane = thread / boxes_a_plane, first = thread % boxes_a_plane * box;
    const int rows = min(box, tile.rows - row - first);
    if (rows > 0 && column + plane * kSwizzleColumns < y_columns<Block>(args)) {
      const unsigned source = shared_address(staging + plane * shape.plane + first * kSwizzleColumns);
      const int to = tile.row + row + first, to_column = static_cast<int>(column) + plane * kSwizzleColumns;
      // dW is larger than L2: it is evicted first, so that memory writes many rows at a time.
      if constexpr (Block::sums_rows)
        store_box_of_rows(to, rows, source, args.y_map, to_column, policy_to_drop());
      else
        store_box_of_rows(to, rows, source, args.y_map, to_column);
    }
    stores_commit();
  }
};

// Copies of bytes store whole rows, each issued by one thread; staged rows are padded.
template <class Block>
struct RowStores : CopyStores<RowStores<Block>> {
  using Element = Block::Result;
  static constexpr Staging shape = Block::staging_shape;

  static __forceinline__ void prefetch(const auto&...) {}
  static __forceinline__ unsigned place(unsigned row, unsigned column) { return row * shape.pitch + column; }
  template <int threads>
  static constexpr int rows_a_warp = shape.rows / (threads / 32);
  // Whether this thread issues copies: the first lanes of every warp a row each.
  template <int threads>
  static __forceinline__ bool issues() {
    return threadIdx.x % 32 < rows_a_warp<threads>;
  }
  template <int threads>
  static __forceinline__ void store(const Args& args, const Block::Tile& tile, const int* targets,
                                    const Element* staging, int row, long long column, int columns) {
    if (!issues<threads>()) return;
    const int thread = threadIdx.x % threads, r = thread / 32 * rows_a_warp<threads> + thread % 32;
    const int bytes = static_cast<int>(min(static_cast<long long>(columns), y_columns<Block>(args) - column)) * 2;
    if (row + r < tile.rows && bytes > 0)
      store_bytes(row_of_y<Block>(args, tile, targets, row + r) + column, shared_address(staging + place(r, 0)), bytes);
    stores_commit();
  }
};

template <class Block>
using WgmmaStore = typename Choice<
    Block::knobs.tma_store == TmaStore::none, ThreadStores<Block>,
    typename Choice<Block::knobs.tma_store == TmaStore::boxes, BoxStores<Block>, RowStores<Block>>::type>::type;

}  // namespace moetune
