// Rows of X that are gathered once, before the tiles that read them: warps that have nothing else to do copy them into
// expert order in memory while others already multiply what is in order. Tensor copies then read them as in a problem
// without permute_x.
#pragma once
#include "epilogue.cuh"
#include "producer/ring.cuh"

namespace moetune {

// Nothing is gathered in advance.
template <class Block>
struct NoGatherFirst {
  static __forceinline__ void begin(const auto&...) {}
  static __forceinline__ void wait_for(const auto&...) {}
  static __forceinline__ void clear(const auto&...) {}
  static __forceinline__ void load_first(const auto&...) {}
};

// How a warp copies rows into expert order: of X, or of W if that is permuted in sums over rows. They are multiplied by
// their weights where weights apply before the product.
template <class Block>
struct GatheredRows {
  using Element = Block::Element;
  static constexpr bool of_w = Block::sums_rows && Block::problem.w_rows != RowOrder::in_place;
  static constexpr RowOrder order = of_w ? Block::problem.w_rows : Block::problem.x_rows;
  static constexpr int warps = Block::threads / 32;  // of a block: each begins with one row
  // Warps of its producer that then copy the rest, `run` rows at a time; the last ones, which have nothing else to do.
  static constexpr int helpers = 2 - Block::scatters - Block::scales_by_warp, run = 4;

  static __forceinline__ int all_rows(const Block& block) {
    int rows = 0;
    for (int e = threadIdx.x % 32; e < Block::experts; e += 32) rows += block.m_sizes()[e];
    return __reduce_add_sync(~0u, rows);
  }

  static __forceinline__ long long width(const Args& args) {
    return !Block::sums_rows ? args.k : of_w ? args.n : args.m;
  }

  // Copies rows [first, first + count) of expert order. Lane 0 may then count them.
  template <int unrolled>
  static __forceinline__ void copy(const Args& args, int first, int count) {
    const int lane = threadIdx.x % 32;
    const int mine = lane < count ? static_cast<int>(memory_row<order>(args, first + lane)) : 0;
    for (int r = 0; r < count; ++r) {
      const Element* source =
          static_cast<const Element*>(of_w ? args.w : args.x) + __shfl_sync(~0u, mine, r) * width(args);
      const auto* from = reinterpret_cast<const uint4*>(source);
      auto* to = reinterpret_cast<uint4*>(static_cast<Element*>(args.gathered_rows) + (first + r) * width(args));
      const int chunks = static_cast<int>(width(args) / Block::chunk);
      const Weigh weigh(args, first + r);
#pragma unroll unrolled
      for (int i = lane; i < chunks; i += 32) to[i] = weigh(__ldg(from + i));
    }
    __syncwarp();
    if (lane == 0) __threadfence();
  }

 private:
  // A chunk of a row, times its weight where weights apply before the product.
  struct NoWeight {
    __forceinline__ NoWeight(const Args&, int) {}
    __forceinline__ uint4 operator()(const uint4& chunk) const { return chunk; }
  };
  struct WeightOfRow {
    float weight;
    __forceinline__ WeightOfRow(const Args& args, int row) : weight(args.topk_weights[args.gather_indices[row]]) {}
    __forceinline__ unsigned pair(unsigned two) const {
      const Element low = {static_cast<unsigned short>(two)}, high = {static_cast<unsigned short>(two >> 16)};
      return pack<Element>(to_float(low) * weight, to_float(high) * weight);
    }
    __forceinline__ uint4 operator()(const uint4& chunk) const {
      return {pair(chunk.x), pair(chunk.y), pair(chunk.z), pair(chunk.w)};
    }
  };
  using Weigh = typename Choice<Block::problem.weighs_x, WeightOfRow, NoWeight>::type;
};

// Rows in expert order; each gathered_together of them have a counter.
template <class Block>
struct GatherInOrder : GatheredRows<Block> {
  using Tile = Block::Tile;
  using Rows = GatheredRows<Block>;
  using Rows::warps, Rows::helpers, Rows::run, Rows::all_rows;
  static_assert(gathered_together % run == 0 && warps % run == 0, "a run of rows is counted by one counter");

  // Copies the first rows. All warps of all blocks call it when m_sizes are in shared memory.
  static __forceinline__ void begin(const Block& block) {
    const int rows = all_rows(block), row = blockIdx.x * warps + threadIdx.x / 32;
    if (row < rows) copy<8>(block.args, row, 1, rows);
  }
  // The role of helper warp `helper`: copies the rest, without waiting for the tiles.
  static __forceinline__ void help(const Block& block, int helper) {
    const int rows = all_rows(block);
    for (int first = gridDim.x * warps + (blockIdx.x * helpers + helper) * run; first < rows;
         first += gridDim.x * helpers * run)
      copy<8>(block.args, first, min(run, rows - first), rows);
  }
  // The finding warp waits until the tile's rows are in order, except for the block's first tile: its loader waits
  // instead, with W already on its way.
  static __forceinline__ void wait_for(const Args& args, const Tile& tile, bool first) {
    if (!first) wait<32>(args, tile);
  }
  // Fills the stages of the block's first tile: W of all, then X when its rows are in order. Other tiles only pass the
  // fence: tensor copies read rows that ordinary stores wrote.
  template <class Copies>
  static __forceinline__ void load_first(const Copies& copies, const Steps& steps, bool first, int& k,
                                         typename Block::Stage& stage) {
    const int count = first ? min(Block::stages, steps.end - k) : 0;
    if (elect_one()) {
      if (count > 0) {
#pragma unroll 1
        for (int i = 0; i < count; ++i) copies.template issue<false, true>(i, (k + i) * Block::block_k);
        wait<1>(copies.block.args, copies.tile);
        fence_async_global();
#pragma unroll 1
        for (int i = 0; i < count; ++i) copies.template issue<true, false>(i, (k + i) * Block::block_k);
      } else {
        fence_async_global();
      }
    }
    k += count;
    stage.advance(count);
  }
  // The last block clears the counts for the next launch.
  static __forceinline__ void clear(const Block& block) {
    const int rows = Block::Scheduler::all_rows(block.scheduler().value);
    for (int place = 0; place * gathered_together < rows; ++place) block.args.gathered[place] = 0;
  }

 private:
  // With the last of all `rows` the counter of an incomplete group is filled up to gathered_together.
  template <int unrolled>
  static __forceinline__ void copy(const Args& args, int first, int count, int rows) {
    Rows::template copy<unrolled>(args, first, count);
    if (threadIdx.x % 32 == 0) {
      const int missing =
          first + count == rows ? (gathered_together - rows % gathered_together) % gathered_together : 0;
      atomicAdd(args.gathered + first / gathered_together, count + missing);
    }
  }

  // Waits until the tile's rows are in order; for all lanes of a warp or one thread. Where a block of a cluster has no
  // rows there may be no counter either.
  template <int lanes>
  static __forceinline__ void wait(const Args& args, const Tile& tile) {
    const int end = tile.rows == 0 ? 0 : tile.row + tile.rows;
    for (int place = tile.row / gathered_together + static_cast<int>(threadIdx.x % lanes);
         place * gathered_together < end; place += lanes)
      while (load_relaxed(args.gathered + place) < gathered_together) {
      }
    if constexpr (lanes > 1) __syncwarp();
    __threadfence();
  }
};

// Rows that are summed over, expert after expert in the order in which tiles go through them, counted by expert.
template <class Block>
struct GatherByExpert : GatheredRows<Block> {
  using Tile = Block::Tile;
  using Rows = GatheredRows<Block>;
  using Rows::warps, Rows::helpers, Rows::run, Rows::all_rows;

  // The experts in that order, as a warp looks for rows further and further on.
  struct Search {
    const Block& block;
    int window = 0, window_rows = 0;  // first of the 32 experts that are scanned at once; rows before it

    // Copies `count` rows from `place` of that order on, which may belong to several experts.
    template <int unrolled>
    __forceinline__ void copy(int place, int count) {
      const int lane = threadIdx.x % 32;
      while (count > 0) {
        const int m = window + lane < Block::experts ? block.m_sizes()[window + lane] : 0;
        int sum = m;
        for (int step = 1; step < 32; step *= 2) {
          const int more = __shfl_up_sync(~0u, sum, step);
          if (lane >= step) sum += more;
        }
        const unsigned past = __ballot_sync(~0u, place < window_rows + sum);
        if (past == 0) {
          window_rows += __shfl_sync(~0u, sum, 31);
          window += 32;
          continue;
        }
        const int found = __ffs(past) - 1, end = window_rows + __shfl_sync(~0u, sum, found);
        const int inside = place - (end - __shfl_sync(~0u, m, found)), here = min(count, end - place);
        const int first = block.template at<int>(Block::layout.row_of)[window + found] + inside;
        Rows::template copy<unrolled>(block.args, first, here);
        const int expert = block.template at<int>(Block::layout.expert_of)[window + found];
        if (lane == 0) atomicAdd(block.args.gathered + expert, here);
        place += here, count -= here;
      }
    }
  };

  static __forceinline__ void begin(const Block& block) {
    const int place = blockIdx.x * warps + threadIdx.x / 32;
    if (place < all_rows(block)) Search{block}.template copy<8>(place, 1);
  }
  static __forceinline__ void help(const Block& block, int helper) {
    const int rows = all_rows(block);
    Search search = {block};
    for (int place = gridDim.x * warps + (blockIdx.x * helpers + helper) * run; place < rows;
         place += gridDim.x * helpers * run)
      search.template copy<8>(place, min(run, rows - place));
  }
  // The finding warp waits for the rows of the tile's expert.
  static __forceinline__ void wait_for(const Args& args, const Tile& tile, bool) {
    while (load_relaxed(args.gathered + tile.expert) < tile.depth) {
    }
    __threadfence();
  }
  template <class Copies>
  static __forceinline__ void load_first(const Copies&, const Steps&, bool, int&, typename Block::Stage&) {
    if (elect_one()) fence_async_global();  // tensor copies read rows that ordinary stores wrote
  }
  static __forceinline__ void clear(const Block& block) {
    for (int expert = 0; expert < Block::experts; ++expert) block.args.gathered[expert] = 0;
  }
};

template <class Block>
using RowGather =
    typename Choice<!Block::gathers_first, NoGatherFirst<Block>,
                    typename Choice<Block::sums_rows, GatherByExpert<Block>, GatherInOrder<Block>>::type>::type;

}  // namespace moetune
