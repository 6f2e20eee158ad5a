// The wgmma variant: persistent, warp-specialised blocks for sm_90a. One warpgroup, the producer, finds tiles and fills
// a ring of stages with X and W; one to three warpgroups, the consumers, multiply the stages and store Y. W may be on
// wgmma's M side and the rows of X on its N side ("swapped"): a tile is then only as high as it has rows.
//
//   tiles ──slot──▶ loader ──full──▶ multiplier ──sums──▶ epilogue ──▶ Y
//     └──────slot────────────────────────┘  │
//                     ◀──empty──────────────┘
#pragma once
#include "producer/box_loader.cuh"
#include "producer/row_loader.cuh"
#include "producer/stage_scales.cuh"
#include "wgmma/epilogue/wgmma_epilogue.cuh"
#include "wgmma/wgmma_multiplier.cuh"

namespace moetune {

template <class Config>
struct Wgmma {
  using Block = WgmmaBlock<Config>;
  using Tiles = BlockTiles<Block>;
  using Loader = typename Choice<Block::by_rows, RowLoader<Block>, BoxLoader<Block>>::type;
  using Targets = TileTargets<Block>;

  static __forceinline__ void run(const Args& args) {
    declare_sums<Block::sum_sets, Block::part_width / 2>();  // before all code that names them
    if constexpr (Block::w_in_registers) declare_operands();
    extern __shared__ __align__(1024) char memory[];
    const Block block = {{}, args, memory};
    setup(block);
    constexpr Registers count = registers(Block::knobs, Block::scales_by_warp);
    if (threadIdx.x < 128) {
      if constexpr (Block::consumers > 1) registers_down<count.producer>();
      produce(block);
    } else {
      if constexpr (Block::consumers > 1) registers_up<count.consumer>();
      consume(block);
    }
    // No block may leave while others still copy into it or arrive at its barriers.
    if constexpr (Block::cluster > 1) cluster_sync();
  }

  static __forceinline__ void setup(const Block& block) {
    ExpertAddresses<Block>::setup(block);
    if (threadIdx.x == 0) {
      ExpertAddresses<Block>::prefetch(block.args);
      StageBoxes<Block>::prefetch(block.args);
      WgmmaStore<Block>::prefetch(block.args);
      // full: a stage's copies have landed; consumers wait for it. empty: they have read it; the loader waits for it.
      for (int i = 0; i < Block::stages; ++i) {
        barrier_init(block.full(i),
                     (Block::by_boxes ? 1 : 0) + (Block::by_rows ? 128 : 0) + (Block::scales_by_warp ? 1 : 0));
        barrier_init(block.empty(i),
                     warpgroups_a_tile(Block::knobs) * Block::cluster * (128 / WgmmaMultiplier<Block>::releasing));
      }
      Tiles::init_barriers(block);
      Targets::init_barriers(block);
      fence_barrier_init();
      block.scheduler().value = Block::Scheduler::begin(block.args);
      block.scheduler().value.m_sizes = block.m_sizes();  // scans read shared memory only
    }
    if constexpr (Block::pdl_at_once) pdl_wait();
    if constexpr (Block::pdl_at_once || Block::pdl_for_x) pdl_trigger();
    Tiles::read_sizes(block);
    __syncthreads();
    if constexpr (Block::cluster > 1) cluster_sync();
    Tiles::Source::begin(block);
    RowGather<Block>::begin(block);
  }

  // The four warps of the producer. With cp.async all four load, and the first also finds tiles.
  static __forceinline__ void produce(const Block& block) {
    const int warp = threadIdx.x / 32;
    if (Block::by_rows || warp == 0) {
      Loader::run(block);
    } else if (warp == 1) {
      Tiles::find_all(block);
    } else if (warp == 2 && Block::scatters) {
      Targets::look_up_all(block);
    } else if (warp == 3 && Block::scales_by_warp) {
      if constexpr (Block::scales_by_warp) StageScales<Block>::load_all(block);
    } else if constexpr (Block::gathers_first) {
      RowGather<Block>::help(block, warp - (Block::scatters ? 3 : 2));
    }
  }

  static __forceinline__ void consume(const Block& block) {
    const WgmmaWarpgroup<Block> group = {block};
    WgmmaMultiplier<Block> multiplier = {group};
    WgmmaEpilogue<Block> epilogue = {group};
    typename Block::Slot slot;
    multiplier.setup();
    while (true) {
      const bool mine = multiplier.is_next(slot);
      const auto tile = Tiles::take(block, slot);
      if (tile.expert < 0) break;
      const Steps steps = block.steps_of(tile);
      if (!mine) {
        multiplier.skip(steps);
        continue;
      }
      epilogue.setup(tile, slot);
      typename Block::Sums sum;
      const bool busy = multiplier.is_busy(tile);
      epilogue.begin(tile, busy, sum);
      multiplier.step(tile, steps, busy, sum);
      epilogue.step(tile, slot, busy, sum);
    }
    epilogue.finish();
  }
};

}  // namespace moetune
