// What all parts of the wgmma variant share: the constants of a candidate, the shared memory of a block, places in its
// rings. No work is done here.
#pragma once
#include "hopper_ptx.cuh"
#include "scheduler.cuh"

namespace moetune {

template <class Config>
struct WgmmaShape {
  struct Nothing {};

  // Addressing by pointers: a tile knows its expert's own matrices, and two tensor maps follow the expert.
  static constexpr bool by_pointers = Config::addressing == 1;
  static constexpr bool shares = Config::split == 0;
  using AnyTile = typename Choice<shares, SharedOut, moetune::Tile>::type;
  struct Located : AnyTile {
    int first;  // row of the expert
    const void *x, *w;
    void* y;
  };
  struct Maps {
    alignas(128) TensorMap x;
    alignas(128) TensorMap w;
  };

  using Element = typename Config::Element;
  static constexpr int block_m = Config::block_m, block_n = Config::block_n, block_k = Config::block_k;
  static constexpr int stages = Config::stages, consumers = Config::consumers;
  static constexpr bool swapped = Config::swap, pingpong = Config::schedule == 1;
  static constexpr bool x_by_rows = !Config::tma_x, w_by_rows = !Config::tma_w;  // by cp.async, of four warps
  static constexpr bool by_rows = x_by_rows || w_by_rows, by_boxes = !(x_by_rows && w_by_rows);
  static constexpr int cluster_m = Config::cluster == 1 ? 2 : 1, cluster_n = Config::cluster == 2 ? 2 : 1;
  static constexpr int cluster = cluster_m * cluster_n;
  static constexpr bool weighs = Config::topk_weights, scatters = Config::permute_y;
  // Rows of X are gathered with each tile that reads them, or once and ahead of the tiles.
  static constexpr bool gathers_first = Config::gather == 1, gathers = Config::permute_x && !gathers_first;

  // wgmma's M side: groups of 64 rows a warpgroup; its N side.
  static constexpr int side = swapped ? block_n : block_m;
  static constexpr int groups = side / 64 / (pingpong ? 1 : consumers);
  static constexpr int width = swapped ? block_m : block_n;
  static constexpr int halves = block_k / 64;  // a row of shared memory is 64 elements, its swizzle's 128 bytes
  static constexpr int row_bytes = 128;
  // Rows of X come in large boxes, and what is left of them in small ones where there are such.
  static constexpr int x_boxes = (block_m + Config::x_rest - 1) / Config::x_box;
  static constexpr bool rests = !x_by_rows && Config::x_rest < Config::x_box;
  static constexpr bool dynamic = Config::tiles == 1, together = Config::pace == 1;
  // A tile knows how much of X the next round of tiles is to find in L2.
  static constexpr bool keeps = Config::keeps;
  struct Kept : AnyTile {
    int kept;  // columns
  };
  using Tile = typename Choice<by_pointers, Located, typename Choice<keeps, Kept, AnyTile>::type>::type;
  // Tiles on their way. Few, so that a block takes no tile long before it has time for it; even, for ping-pong's turns.
  static constexpr int tile_slots = pingpong ? 4 : by_rows ? 2 : 1;

  static_assert(side % (64 * (pingpong ? 1 : consumers)) == 0, "a warpgroup multiplies whole groups of 64 rows");
  static_assert(block_m % 16 == 0 && block_n % 16 == 0, "stmatrix stores 16 rows and columns at a time");
  static_assert(block_m % Config::x_rest == 0 && Config::x_box % Config::x_rest == 0 && Config::x_rest % 8 == 0,
                "boxes of X are whole swizzle groups");
  static_assert(!rests || (cluster == 1 && !by_pointers), "what blocks share, and experts by pointers, have boxes of one size");
  static_assert(!gathers || x_by_rows, "tensor copies don't gather rows");
  static_assert(!gathers_first || (Config::permute_x && !by_rows && !by_pointers), "rows in order come by one tensor map");
  static_assert(!weighs || scatters, "rows are multiplied while they are scattered");
  static_assert(!pingpong || consumers == 2, "two warpgroups play ping-pong");
  static_assert(!(x_by_rows && cluster_n > 1) && !(w_by_rows && cluster_m > 1), "cp.async serves one block only");
  static_assert(!keeps || (together && !x_by_rows && !by_pointers), "only rounds of tiles, of boxes of one map, keep X");
  static_assert(!(dynamic && together), "blocks that take tiles as they have time begin them on their own");
  static_assert(!(Config::split > 1 && (cluster > 1 || together)), "pieces of tiles go to blocks one by one");
  static_assert(!(shares && (cluster > 1 || dynamic)), "blocks share the last tiles by their numbers, one by one");
  static_assert(!(dynamic && cluster > 1), "the blocks of a cluster would take different tiles");

  using Sums = float[groups][width / 2];

  // Results pass through shared memory so that rows leave in long pieces: planes of `staged_rows` rows of Y, 64 columns
  // wide, in the swizzle that tensor copies know; or, for copies of rows, plain rows 16 bytes longer than their columns,
  // so that eight of them touch every bank: 512 bytes a copy are 1 % faster than stores where rows are scattered, 128
  // bytes 7 % slower (Qwen3 down, 4096 tokens, H200). Swapped, a warpgroup stages together, two buffers in turn; else every warp
  // its own 16 rows.
  // Memory that turns from reading to writing for a few rows loses more time than they take: 1 % of the bytes cost 5 % of
  // the time (256 tokens, H200). So rows may be held until `hold` of them leave together.
  static constexpr bool copies_boxes = Config::tma_store == 1, copies_rows = Config::tma_store == 2;
  static constexpr bool copies_out = copies_boxes || copies_rows, holds = Config::hold > 0;
  static constexpr int staged_rows = holds ? Config::hold : swapped && groups == 1 ? 32 : 16;
  static constexpr int planes = swapped ? groups : 1;
  static constexpr int plane = staged_rows * 64;
  static constexpr int pitch = planes * 64 + 8;
  static constexpr int buffer = copies_rows ? staged_rows * pitch : planes * plane;  // elements of a buffer
  static constexpr int staged = (holds ? 1 : swapped ? 2 : 4) * buffer;
  static_assert(!(copies_boxes && scatters), "tensor copies don't scatter rows");
  static_assert(!(copies_boxes && by_pointers), "boxes of Y go by one tensor map for all experts");
  static_assert(!(copies_boxes && block_n % 64 != 0), "boxes of Y are 64 columns wide");
  static_assert(!holds || (swapped && !copies_out), "rows are held of swapped tiles, for threads to store");
  static_assert(!holds || (staged_rows >= block_m && staged_rows % 16 == 0), "a tile finds room, 16 rows at a time");

  struct Held {  // a tile that waits, and where its rows are staged
    Tile tile;
    int first;
  };
  struct HeldTiles {  // of a warpgroup, and where the staged rows go
    Held tiles[holds ? staged_rows / 16 : 1];
    int target[scatters ? staged_rows : 1];
  };
  // Where the rows of a tile are stored, and with what weight: noted while the tile is multiplied, or before by its consumers.
  static constexpr bool notes_ahead = scatters && !by_rows;
  static constexpr int note_turns = notes_ahead ? 2 : consumers;
  struct Notes {
    unsigned long long full, empty;
    int target[block_m];
    Element weight[block_m];
  };
  using Gathered = int[2][block_m];  // numbers of the rows of a tile in X
  // One block in `mix` takes experts of few rows first.
  static constexpr int mix = Config::mix;
  static_assert(mix == 0 || (dynamic && Config::split == 1 && !by_pointers && !gathers_first), "tiles are taken whole, from one base, rows gathered or not");
  struct Order {
    int expert_of[Config::experts], row_of[Config::experts];
  };
  using Tiles = Scheduler<Config, cluster_m, cluster_n, swapped ? 8 : 0, Config::split, (mix > 0)>;

  struct Shared : Choice<by_pointers, Maps, Nothing>::type {
    alignas(1024) Element w[stages][block_n * block_k];  // [halves][block_n][64]
    alignas(1024) Element x[stages][block_m * block_k];
    alignas(1024) Element staging[consumers][staged];
    Tiles scheduler;         // here and not in registers: it is needed once a tile
    int m_sizes[Config::experts];  // in the order in which the block goes through them
    Tile tiles[tile_slots];  // expert < 0 ends them
    unsigned long long full[stages], empty[stages], tile_full[tile_slots], tile_empty[tile_slots];
    typename Choice<scatters, Notes[note_turns], Nothing>::type noted;
    typename Choice<holds, HeldTiles[consumers], Nothing>::type held;
    int last[consumers];  // whether the tile's other pieces were done before this block's
    typename Choice<gathers, Gathered, Nothing>::type gathered;
    typename Choice<(mix > 0), Order, Nothing>::type order;
    typename Choice<shares, LastRound, Nothing>::type last_round;
  };
  static_assert(sizeof(Shared) == Config::shared_bytes, "the host's plan and the kernel disagree on shared memory");

  // A place in a ring of barriers: which one, and the parity of its phase.
  template <int count>
  struct Place {
    int index = 0;
    unsigned parity = 0;
    __device__ __forceinline__ void advance(int steps = 1) {
      index += steps;
      if (steps == 1) {
        if (index == count) index = 0, parity ^= 1;
      } else {
        const int rounds = index / count;
        index -= rounds * count;
        parity ^= rounds & 1;
      }
    }
  };

  // The same for the ring of tiles: one number, for registers are few.
  struct Slot {
    static_assert((tile_slots & (tile_slots - 1)) == 0, "tile_slots is a power of two");
    unsigned count = 0;
    __device__ __forceinline__ int index() const { return count % tile_slots; }
    __device__ __forceinline__ unsigned parity() const { return count / tile_slots % 2; }
  };

  static __device__ __forceinline__ unsigned at(const unsigned long long* barriers, int index) { return shared_address(barriers + index); }
  static __device__ __forceinline__ void warpgroup_sync() { named_sync(8 + threadIdx.x / 128, 128); }
};

}  // namespace moetune
