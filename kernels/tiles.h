// Tiles of Y as plain values, how the last of them are divided among blocks, and how much memory that takes. Both
// compilers read this; scheduler.cuh walks through the tiles.
#pragma once

namespace moetune {

template <bool condition, class T, class Otherwise>
struct Choice {
  using type = T;
};
template <class T, class Otherwise>
struct Choice<false, T, Otherwise> {
  using type = Otherwise;
};

/// The smallest multiple of `step` that is not below `value`.
constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }

/// Which tile index moves fastest inside an expert.
enum class Raster { n, m };

/// One tile of Y. Rows are those of expert order.
struct Tile {
  int expert;
  int row;     // first row
  int rows;    // valid rows, at most block_m; 0 where a block of a cluster has none
  int column;  // first column, of the product
  int piece;   // number of the piece along k, counted through all tiles that are cut; or kWhole
};
constexpr int kWhole = -1;

/// A tile where the last round is shared: a whole one, the beginning of one, or a part that is missing there. `piece`
/// says which, by the functions below.
struct PartialTile : Tile {
  int first_step, end_step;  // steps along k that the block multiplies
  int begins;                // whether all blocks begin a tile at the same time as this one

  // `piece` of the beginning of a tile whose first missing part is `missing`, and of a missing part. The block of a
  // part may also add the one after it.
  static constexpr int beginning(int missing) { return kWhole - 1 - missing; }
  static constexpr int missing_part(int number, bool adds_next) { return 2 * number + adds_next; }
  constexpr bool lacks_parts() const { return piece < kWhole; }
  constexpr bool is_part() const { return piece >= 0; }
  constexpr bool adds_next() const { return piece % 2 != 0; }
  // The number of the part, or of the first that is missing.
  constexpr int part() const { return is_part() ? piece / 2 : kWhole - 1 - piece; }
};

/// A tile of a product that sums over its expert's rows. `row` counts through the results of all experts.
struct TileOverRows : Tile {
  int first_row;  // of the expert, in expert order
  int depth;      // rows of the expert
};

/// A tile and how many columns of its X should stay in L2 for the next round.
template <class Base>
struct TileWithKeptX : Base {
  int kept_columns;
};

/// A tile and the matrices of its expert.
template <class Base>
struct TileWithPointers : Base {
  int first;  // first row, counted from the expert's first
  const void *x, *w;
  void* y;
};

/// The order of experts in a walk: that of their rows in memory.
struct ExpertsInOrder {
  constexpr int tile_in_expert(int tile, int first, int) const { return tile - first; }
  constexpr void find(int&, int&) const {}
};

/// Experts sorted by their rows: some blocks walk up from the fewest rows, the others down from the most.
struct ExpertsFromBothEnds {
  const int* expert_of;  // [experts] in the order of the walk
  const int* row_of;     // [experts] first row of each
  int tiles;             // of all experts
  bool from_few;         // whether this block starts with the fewest rows

  constexpr int tile_in_expert(int tile, int first, int end) const { return from_few ? end - 1 - tile : tile - first; }
  constexpr void find(int& expert, int& row) const { row = row_of[expert], expert = expert_of[expert]; }
};

/// Where a walk through the tiles stands.
template <class Order>
struct Walk : Order {
  const int* m_sizes;  // [experts] rows, in the order of the walk
  int experts;
  int n_tiles;
  int index;                                               // of the next tile or piece, over all experts
  int whole;                                               // tiles that are not cut along k
  int window;                                              // first of the 32 experts that are scanned at once
  int window_tiles;                                        // tiles before the window
  int window_rows;                                         // rows before the window
  int expert, expert_m, expert_row, first_tile, end_tile;  // of the expert found last

  Walk() = default;
  constexpr Walk(const int* rows, int all, int columns, int first)
      : m_sizes(rows),
        experts(all),
        n_tiles(columns),
        index(first),
        whole(0),
        window(0),
        window_tiles(0),
        window_rows(0),
        expert(0),
        expert_m(0),
        expert_row(0),
        first_tile(0),
        end_tile(0) {}
};

/// An expert as a walk finds it: its rows begin at `row` of expert order.
struct FoundExpert {
  int expert, row, rows;
};

/// The order of experts in a walk over equal grids of tiles: sorted by their rows, most first.
struct GridByRows {
  const int* m_sizes;    // [experts] rows, in that order
  const int* expert_of;  // [experts]
  const int* row_of;     // [experts] first row of each
  int experts;

  /// Finds the expert at `place`. False if there is none or, where only experts with rows count, if it has none.
  constexpr bool find(int place, bool with_rows, FoundExpert& found) {
    if (place >= experts || (with_rows && m_sizes[place] == 0)) return false;
    found = {expert_of[place], row_of[place], m_sizes[place]};
    return true;
  }
  constexpr int tile_in_expert(int tile, int) const { return tile; }
};

/// The same, but some blocks go from the fewest rows up, until they meet the others.
struct GridFromBothEnds : GridByRows {
  int tiles;      // of all experts, or of those with rows if only these count
  int left_out;   // experts without rows, if these don't count
  bool from_few;  // whether this block starts with the fewest rows

  constexpr bool find(int place, bool with_rows, FoundExpert& found) {
    return GridByRows::find(from_few ? place + left_out : place, with_rows, found);
  }
  constexpr int tile_in_expert(int tile, int grid) const { return from_few ? grid - 1 - tile : tile; }
};

/// The order of their rows in memory. `place` never decreases from call to call.
struct GridInOrder {
  const int* m_sizes;  // [experts] rows
  int experts;
  int next = 0;  // first expert not looked at yet
  int places = 0;
  FoundExpert last = {0, 0, 0};

  constexpr bool find(int place, bool with_rows, FoundExpert& found) {
    while (places <= place) {
      if (next >= experts) return false;
      last = {next, last.row + last.rows, m_sizes[next]};
      ++next;
      if (!with_rows || last.rows > 0) ++places;
    }
    found = last;
    return true;
  }
  constexpr int tile_in_expert(int tile, int) const { return tile; }
};

/// Where a walk stands whose experts all have the same grid of tiles.
template <class Order>
struct GridWalk : Order {
  int m;                 // rows of each expert's result
  int m_tiles, n_tiles;  // of each expert
  int index;             // of the next tile or piece, over all experts
  int whole;             // tiles that are not cut along k
};

/// How all blocks share the last, incomplete round of tiles: `tiles` blocks begin one each and multiply its first `own`
/// of `steps` steps along k; the other blocks multiply the rest, in `parts` parts a tile. No tiles: nothing is shared.
struct LastRound {
  int tiles;
  int steps, own, parts;
};

constexpr int kMaxParts = 2;

/// Shares the last round of `tiles` tiles of `depth` steps along k among `blocks` blocks, so that all finish at about
/// the same time. Blocks that begin no tile make one part each; where they are fewer than the tiles, some make several
/// parts and pay for storing each. A part is only worth its way through memory if it has enough steps.
constexpr LastRound share_last_round(int tiles, int depth, int blocks, int block_k) {
  const int fewest_steps = 512 / block_k, steps_to_store = 192 / block_k;
  const int tail = tiles % blocks, others = blocks - tail;
  const LastRound none = {0, depth, depth, 0};
  if (tail == 0) return none;
  const int fair = others / tail;
  const int parts = fair < 1 ? 1 : fair > kMaxParts ? kMaxParts : fair;
  const int parts_a_block = (tail + others - 1) / others;
  const int steps = (depth - (parts_a_block - 1) * steps_to_store) / (parts_a_block + parts);
  return steps < fewest_steps ? none : LastRound{tail, depth, depth - parts * steps, parts};
}

/// The most pieces along k that a tile is cut into, for a value of the knob `split`.
constexpr int pieces_of_split(int split) { return split == 0 ? 1 + kMaxParts : split; }

/// Bytes of device memory that a block needs for fp32 sums of tiles cut along k. With split > 1 fewer than two tiles a
/// block are cut; with split = 0 no more parts are missing than there are blocks.
constexpr long long split_workspace_bytes(int split, int block_m, int block_n) {
  const int tiles = split == 1 ? 0 : split == 0 ? 1 : 2 * split;
  return static_cast<long long>(tiles) * block_m * block_n * static_cast<int>(sizeof(float));
}

/// Bytes and alignment of an array's elements.
struct Extent {
  int bytes, align;
};
template <class T>
constexpr Extent extent() {
  return {static_cast<int>(sizeof(T)), static_cast<int>(alignof(T))};
}

/// Allocates shared memory from its beginning on.
struct SharedMemory {
  int end = 0;

  /// Allocates `count` elements and returns their offset.
  constexpr int add(Extent element, int count) {
    const int offset = round_up(end, element.align);
    end = offset + count * element.bytes;
    return offset;
  }
};

}  // namespace moetune
