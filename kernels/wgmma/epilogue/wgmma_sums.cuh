// What a consumer does with the sums of a tile that may be cut along k: stores them, leaves them in memory for others,
// or adds what others left. A policy for each way of cutting (scheduler.cuh, tile_pieces.cuh, last_round.cuh).
#pragma once
#include "wgmma/wgmma_block.cuh"

namespace moetune {

// A warpgroup's sums as the epilogue reads them: (g, v) gives a thread its four of group g and columns 8 v to 8 v + 7
// of wgmma's N side. with() calls `use` with such a function.
template <class Sums>
struct OwnSums {
  const Sums& sum;
  __forceinline__ float4 operator()(int g, int v) const {
    return make_float4(sum[g][4 * v], sum[g][4 * v + 1], sum[g][4 * v + 2], sum[g][4 * v + 3]);
  }
  template <class Use>
  __forceinline__ void with(const Use& use) const {
    use(*this);
  }
};

// Word i of lane q becomes word q of lane i, of each four lanes.
__forceinline__ void transpose_words(unsigned* word) {
#pragma unroll
  for (int step = 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((i & step) == 0) {
        const bool upper = threadIdx.x & step;
        const unsigned other = __shfl_xor_sync(~0u, upper ? word[i] : word[i + step], step);
        word[i] = upper ? other : word[i];
        word[i + step] = upper ? word[i + step] : other;
      }
}

// No tile is cut.
template <class Block>
struct SumsOfTiles {
  using Sums = Block::Sums;
  // Calls `store` where this warpgroup is to store the tile. All its threads call this.
  template <class Store>
  static __forceinline__ void finish(const Block&, const Block::Tile&, int, bool, const Sums& sum, const Store& store) {
    store(OwnSums<Sums>{sum});
  }
};

// Sums in memory: [numbers][warpgroups a tile][copies][groups][vectors][128 threads], four a thread. A number is a
// tile, with a copy for each piece, or a missing part, with one copy.
template <class Block, int copies>
struct SumsInMemory {
  using Sums = Block::Sums;
  static constexpr int groups = Block::groups, vectors = Block::width / 8;
  static constexpr int warpgroups = warpgroups_a_tile(Block::knobs), copy_size = groups * vectors * 128;

  static __forceinline__ int index(int number, int consumer) {
    return number * warpgroups + (Block::alternates ? 0 : consumer);
  }
  static __forceinline__ int thread() {  // read each time: one register less while all sums are live
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread % 128;
  }
  // This thread's place in the first copy.
  static __forceinline__ float4* place(const Args& args, int index) {
    return reinterpret_cast<float4*>(args.workspace) + static_cast<long long>(index) * (copies * copy_size) + thread();
  }
  static __forceinline__ float4 add(const float4& a, const float4& b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  static __forceinline__ void write(float4* to, const Block::Tile& tile, const Sums& sum) {
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        if (Block::swapped && v * 8 >= tile.rows) break;
        const float* d = sum[g] + v * 4;
        __stcg(to + (g * vectors + v) * 128, make_float4(d[0], d[1], d[2], d[3]));
      }
    warpgroup_sync();
  }
};

// Tiles cut into equal pieces: the warpgroup whose piece is finished last adds all and stores the tile.
template <class Block>
struct SumsOfPieces : SumsInMemory<Block, Block::knobs.split> {
  using Memory = SumsInMemory<Block, Block::knobs.split>;
  using typename Memory::Sums;
  static constexpr int split = Block::knobs.split, copy_size = Memory::copy_size;

  template <class Store>
  static __forceinline__ void finish(const Block& block, const Block::Tile& tile, int consumer, bool busy,
                                     const Sums& sum, const Store& store) {
    if (tile.piece < 0) {
      store(OwnSums<Sums>{sum});
    } else if (busy) {
      Memory::write(first_piece(block, tile, consumer) + tile.piece % split * copy_size, tile, sum);
      if (threadIdx.x % 128 == 0) last(block)[consumer] = Block::Cut::is_last(block.args, index_of(tile, consumer));
      warpgroup_sync();
      if (last(block)[consumer]) store(Total{first_piece(block, tile, consumer)});
    }
  }

 private:
  static __forceinline__ int* last(const Block& block) { return block.template at<int>(Block::layout.last); }
  static __forceinline__ int index_of(const Block::Tile& tile, int consumer) {
    return Memory::index(tile.piece / split, consumer);
  }
  static __forceinline__ float4* first_piece(const Block& block, const Block::Tile& tile, int consumer) {
    return Memory::place(block.args, index_of(tile, consumer));
  }

  // The total of all pieces, read four sums at a time: if it were added up in wgmma's registers, the assembler would
  // serialise wgmma.
  struct Total {
    const float4* pieces;
    __forceinline__ float4 operator()(int g, int v) const {
      float4 total = __ldcg(pieces + (g * Memory::vectors + v) * 128);
#pragma unroll
      for (int p = 1; p < split; ++p)
        total = Memory::add(total, __ldcg(pieces + p * copy_size + (g * Memory::vectors + v) * 128));
      return total;
    }
    template <class Use>
    __forceinline__ void with(const Use& use) const {
      use(*this);
    }
  };
};

// A shared last round: the block that began a tile waits for the sums of the missing parts, adds them to its own and
// stores the tile. With two parts, the block of the first adds the second to it.
template <class Block>
struct SumsOfParts : SumsInMemory<Block, 1> {
  using Memory = SumsInMemory<Block, 1>;
  using typename Memory::Sums;
  using Tile = Block::Tile;

  template <class Store>
  static __forceinline__ void finish(const Block& block, const Tile& tile, int consumer, bool busy, const Sums& sum,
                                     const Store& store) {
    const Args& args = block.args;
    if (tile.lacks_parts() && busy) wait(args, index_of(tile, consumer));
    if (!tile.is_part())
      store(OwnAndPart{{sum}, args, tile, consumer});
    else if (busy)
      leave(args, tile, consumer, sum);
  }

 private:
  static __forceinline__ int index_of(const Tile& tile, int consumer) { return Memory::index(tile.part(), consumer); }
  static __forceinline__ void wait(const Args& args, int index) {
    if (threadIdx.x % 128 == 0) Block::Cut::wait(args, index);
    warpgroup_sync();
  }
  // Leaves a part's sums, after adding the next part's where this block has to.
  static __forceinline__ void leave(const Args& args, const Tile& tile, int consumer, const Sums& sum) {
    const int index = index_of(tile, consumer);
    float4* mine = Memory::place(args, index);
    Memory::write(mine, tile, sum);
    if (tile.adds_next()) {
      wait(args, index + Memory::warpgroups);
#pragma unroll 1
      for (int v = 0; v < Memory::groups * Memory::vectors; v += 2) {
        const float4* other = mine + Memory::warpgroups * Memory::copy_size;
        float4 sums[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) sums[i] = Memory::add(__ldcg(mine + (v + i) * 128), __ldcg(other + (v + i) * 128));
#pragma unroll
        for (int i = 0; i < 2; ++i) __stcg(mine + (v + i) * 128, sums[i]);
      }
      warpgroup_sync();
    }
    if (threadIdx.x % 128 == 0) Block::Cut::leave(args, index);
  }

  struct OwnAndPart : OwnSums<Sums> {
    const Args& args;
    const Tile& tile;
    int consumer;
    template <class Use>
    __forceinline__ void with(const Use& use) const {
      if (tile.piece == kWhole) {
        use(*this);
      } else {
        const float4* left = Memory::place(args, index_of(tile, consumer));
        use([&](int g, int v) { return Memory::add((*this)(g, v), __ldcg(left + (g * Memory::vectors + v) * 128)); });
      }
    }
  };
};

// Other sums with the bias of their columns.
template <class Block, class Sum>
struct BiasedSums {
  const Sum& sum;
  const WgmmaWarpgroup<Block>& group;
  const Block::Tile& tile;
  template <class Use>
  __forceinline__ void with(const Use& use) const {
    sum.with([&](const auto& four) {
      use([&](int g, int v) {
        const int lane = threadIdx.x % 32, at_m = (group.first_group + g) * kGroupRows + threadIdx.x % 128 / 32 * 16;
        const int column = tile.column + (Block::swapped ? at_m + lane / 4 : v * 8 + lane % 4 * 2);
        const float low = bias<Block>(group.block.args, tile.expert, column);
        const float high = bias<Block>(group.block.args, tile.expert, column + (Block::swapped ? 8 : 1));
        float4 d = four(g, v);
        d.x += low, d.y += Block::swapped ? low : high, d.z += Block::swapped ? high : low, d.w += high;
        return d;
      });
    });
  }
};

template <class Block, class Sum>
__forceinline__ BiasedSums<Block, Sum> with_bias(const WgmmaWarpgroup<Block>& group, const typename Block::Tile& tile,
                                                 const Sum& sum) {
  return {sum, group, tile};
}

template <class Block>
using WgmmaSums =
    typename Choice<Block::knobs.split == 1, SumsOfTiles<Block>,
                    typename Choice<Block::knobs.split == 0, SumsOfParts<Block>, SumsOfPieces<Block>>::type>::type;

}  // namespace moetune
