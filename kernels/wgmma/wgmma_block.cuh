// What all roles of a wgmma block see: the constants of its Config and its shared memory.
#pragma once
#include "producer/last_round.cuh"
#include "producer/ring.cuh"
#include "tile_pieces.cuh"
#include "wgmma/wgmma_plan.h"

namespace moetune {

template <class Config>
struct WgmmaBlock : Config {
  using typename Config::X, typename Config::W, typename Config::Function;
  using Element = typename X::Stage;
  using Result = typename Function::Result;
  static constexpr WgmmaKnobs knobs = Config::knobs;
  static constexpr KernelProblem problem = Config::problem;
  static_assert(m_side(knobs) % (kGroupRows * warpgroups_a_tile(knobs)) == 0, "consumers have whole groups");
  static_assert(sums(knobs, problem.promotes, problem.quantises()) <= max_sums(knobs, problem), "sums fit registers");
  static constexpr bool w_in_registers = problem.w_in_registers();
  static_assert(problem.x_memory_bits == problem.x_stage_bits &&
                    (problem.w_memory_bits == problem.w_stage_bits || w_in_registers),
                "stages hold elements as they lie in memory");
  static_assert(!w_in_registers || (knobs.swap && knobs.tma_w), "registers are wgmma's M side");
  static_assert(!problem.w_mn_major || knobs.tma_w, "only tensor copies load W whose rows are steps along k");
  static_assert(!problem.permutes_x() || !knobs.tma_x || knobs.gather == Gather::first,
                "tensor copies read rows that are in order");
  static_assert(sizeof(Element) * 8 == problem.x_stage_bits && sizeof(Result) * 8 == problem.y_bits &&
                    sizeof(typename Function::Weight) == problem.weight_bytes &&
                    Function::columns_per_output == problem.columns_per_output &&
                    X::Scales::stage_bytes(knobs.block_m, knobs.block_k) == problem.x_scale_bytes &&
                    W::Scales::stage_bytes(knobs.block_n, knobs.block_k, problem.columns_per_output) ==
                        problem.w_scale_bytes,
                "the problem has the sizes of the policies");
  static_assert(!problem.x_mn_major || problem.w_mn_major, "where rows of X are steps along k, those of W are too");
  static constexpr WgmmaLayout layout = wgmma_layout(knobs, problem);
  static constexpr Staging staging_shape = moetune::staging(knobs, Function::columns_per_output);

  static constexpr int block_m = knobs.block_m, block_n = knobs.block_n, block_k = knobs.block_k;
  static constexpr int stages = knobs.stages, consumers = knobs.consumers, experts = problem.experts;
  static constexpr bool swapped = knobs.swap, alternates = pingpong(knobs), dynamic = knobs.tiles == TileOrder::dynamic;
  static constexpr bool x_by_rows = !knobs.tma_x, w_by_rows = !knobs.tma_w;  // with cp.async, by four warps
  static constexpr bool has_scales = problem.x_scale_bytes > 0;
  static constexpr bool warps_read = has_scales || w_in_registers;           // of a stage, each for itself
  static constexpr bool scales_by_warp = has_scales && !copies_rows(knobs);  // of the producer, that does nothing else
  static constexpr bool by_rows = copies_rows(knobs), by_boxes = knobs.tma_x || knobs.tma_w;
  static constexpr int cluster_m = knobs.cluster == Cluster::m ? 2 : 1, cluster_n = knobs.cluster == Cluster::n ? 2 : 1;
  static constexpr int cluster = cluster_m * cluster_n;
  // Rows of Y are looked up where they are scattered or weighted.
  static constexpr bool scatters = problem.looks_up_rows(), weighs = Function::weighs;
  static constexpr bool gathers_first = knobs.gather == Gather::first, gathers = problem.permutes_x() && !gathers_first;
  static constexpr bool x_mn_major = problem.x_mn_major, w_mn_major = problem.w_mn_major;  // each row is a step along k
  static constexpr bool stores_sums = problem.stores_sums(), quantises = problem.quantises();
  static constexpr bool makes_gates = problem.makes_gates;
  static constexpr bool sums_rows = problem.sums_rows();  // of an expert: k is ragged, X and W are across
  static constexpr bool pointers = by_pointers(knobs), shares = shares_last_round(knobs), mixed = knobs.mix > 0;
  // Whether it may be up of a layer, or down. Up waits before it lets down begin, which at once reads what up reads.
  static constexpr bool pdl_at_once = pdl_waits_at_once(problem), pdl_for_x = pdl_waits_for_x(knobs, problem);
  static constexpr bool together = knobs.pace == Pace::common;  // all blocks begin their tiles at the same time

  static constexpr int element_bytes = sizeof(Element);
  static constexpr int groups = moetune::groups(knobs);  // of kGroupRows on wgmma's M side, of a warpgroup
  static constexpr int height = m_side(knobs), width = n_side(knobs), part_width = part_side(knobs, quantises);
  // Elements of X and W in a row of the swizzle, in 16 bytes, and along k in one wgmma.
  static constexpr int row_columns = swizzle_columns(problem), chunk = 16 / element_bytes;
  static constexpr int k_step = 32 / element_bytes;
  static constexpr int halves = block_k / row_columns;  // of a stage: row_columns each
  static constexpr int row_bytes = kSwizzleBytes;
  static constexpr int threads = 128 * (1 + consumers);

  static_assert(!stores_sums || (!weighs && Function::columns_per_output == 1), "sums are stored as they are");
  static_assert(sizeof(typename W::Stage) == sizeof(Element), "wgmma multiplies elements of one size");
  static_assert(!problem.accumulates || sums_rows, "only sums over rows are added to Y");

  using Tile = typename TileTypes<shares, pointers, keeps_x(knobs), sums_rows>::type;
  using Cut = typename Choice<knobs.split == 1, WholeTiles,
                              typename Choice<shares, SharedLastRound, TilePieces<knobs.split>>::type>::type;
  using Order = typename Choice<mixed, ExpertsFromBothEnds, ExpertsInOrder>::type;
  using GridOrder = typename Choice<mixed, GridFromBothEnds, GridByRows>::type;
  using Scheduler =
      typename Choice<sums_rows, GridScheduler<Config, Cut, GridOrder, cluster_m, cluster_n>,
                      moetune::Scheduler<Config, Cut, Order, cluster_m, cluster_n, swapped ? 8 : 0>>::type;
  static constexpr int tile_slots = moetune::tile_slots(knobs, sums_rows);
  using Slot = SlotPosition<tile_slots>;
  using Stage = RingPosition<stages>;
  using Sums = float[groups][width / 2];
  static constexpr int sum_sets = Config::AfterStage::restarts ? knobs.in_flight + 1 : groups;  // of registers of wgmma
  static_assert(layout.scheduler % alignof(Aligned<typename Scheduler::State>) == 0, "the scheduler is copied aligned");

  const Args& args;
  char* memory;  // the block's shared memory

  template <class T>
  __forceinline__ T* at(int offset) const {
    return reinterpret_cast<T*>(memory + offset);
  }
  __forceinline__ unsigned barrier(int offset, int index) const { return shared_address(at<Barrier>(offset) + index); }
  __forceinline__ unsigned full(int stage) const { return barrier(layout.full, stage); }
  __forceinline__ unsigned empty(int stage) const { return barrier(layout.empty, stage); }
  __forceinline__ auto* x() const { return at<Element[block_m * block_k]>(layout.x); }
  // A block of a reordered W, of a stage: `number` along the tile's rows, `half` along k.
  __forceinline__ char* w_block(int stage, int number, int half) const {
    return memory + layout.w + stage * problem.w_stage_bytes(block_n, block_k) +
           (number * halves + half) * problem.w_block_bytes;
  }
  __forceinline__ auto* w() const { return at<Element[block_n * block_k]>(layout.w); }
  // The scales of a stage.
  __forceinline__ char* x_scales(int stage) const { return memory + layout.x_scales + stage * problem.x_scale_bytes; }
  __forceinline__ char* w_scales(int stage) const { return memory + layout.w_scales + stage * problem.w_scale_bytes; }
  __forceinline__ int* m_sizes() const { return at<int>(layout.m_sizes); }
  __forceinline__ auto& scheduler() const { return *at<Aligned<typename Scheduler::State>>(layout.scheduler); }
  __forceinline__ Cut cut() const { return Cut(at<LastRound>(layout.last_round)); }
  __forceinline__ Steps steps_of(const Tile& tile) const {
    return Cut::steps_of(tile, Scheduler::depth_of(args, tile));
  }
  // Each thread that reads X calls it first, and the one that finds tiles before it uses a counter or ends.
  static __forceinline__ void pdl_wait_for_x() {
    if constexpr (pdl_for_x) pdl_wait();
  }
  // Position in the cluster.
  static __forceinline__ int rank() { return cluster == 1 ? 0 : cluster_rank(); }
};

// What the roles of a consumer know of their warpgroup.
template <class Block>
struct WgmmaWarpgroup {
  const Block& block;
  const int consumer = __shfl_sync(~0u, threadIdx.x / 128, 0) - 1;           // of the block's
  const int first_group = Block::alternates ? 0 : consumer * Block::groups;  // of wgmma's M side, in the tile

  // Its staging buffers.
  __forceinline__ auto& staging() const {
    constexpr Staging shape = Block::staging_shape;
    return block.template at<typename Block::Result[shape.buffers * shape.buffer]>(Block::layout.staging)[consumer];
  }
};

}  // namespace moetune
