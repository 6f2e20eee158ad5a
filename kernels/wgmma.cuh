// The wgmma variant: persistent, warp-specialised blocks for sm_90a. A producer warpgroup fills a ring of stages with
// tensor copies (or copies rows with cp.async), one to three consumer warpgroups multiply and store.
// W may stand on wgmma's M side and the rows of X on its N side ("swapped"): tiles are then as high as their rows.
#pragma once
#include "tile.cuh"
#include "wgmma_gather.cuh"
#include "wgmma_load.cuh"
#include "wgmma_notes.cuh"
#include "wgmma_order.cuh"
#include "wgmma_ptx.cuh"
#include "wgmma_split.cuh"
#include "wgmma_store.cuh"

namespace moetune {

template <class Config>
struct Wgmma : WgmmaShape<Config> {
  using Shape = WgmmaShape<Config>;
  using Gather = WgmmaGather<Config>;
  using Load = WgmmaLoad<Config>;
  using Maps = WgmmaMaps<Config>;
  using Notes = WgmmaNotes<Config>;
  using Order = WgmmaOrder<Config>;
  using Store = WgmmaStore<Config>;
  using Split = WgmmaSplit<Config>;
  using Shape::block_k, Shape::stages, Shape::consumers, Shape::swapped, Shape::pingpong;
  using Shape::x_by_rows, Shape::w_by_rows, Shape::by_rows, Shape::by_boxes, Shape::by_pointers;
  using Shape::cluster, Shape::cluster_m, Shape::cluster_n, Shape::scatters, Shape::copies_boxes, Shape::notes_ahead;
  using Shape::gathers_first, Shape::side, Shape::groups, Shape::width, Shape::row_bytes, Shape::dynamic, Shape::together, Shape::keeps, Shape::tile_slots;
  using Shape::at, Shape::warpgroup_sync;
  using Element = typename Shape::Element;
  using Tile = typename Shape::Tile;
  using Shared = typename Shape::Shared;
  using Sums = typename Shape::Sums;
  using Tiles = typename Shape::Tiles;
  using Slot = typename Shape::Slot;
  template <int count>
  using Place = typename Shape::template Place<count>;

  // ---- producer

  static __device__ __forceinline__ void locate(const Args& args, const Tiles& scheduler, Tile& tile) {
    tile.first = tile.row - scheduler.expert_row;
    tile.w = args.w_of[tile.expert];
    if constexpr (!Config::permute_x) tile.x = args.x_of[tile.expert];
    if constexpr (!scatters) tile.y = args.y_of[tile.expert];
  }
  // A round of tiles that goes through one expert and a part of the next reads that part's X again in the round after,
  // when most of L2 is W. What is kept there is little, for what was kept once stays until more is (Mixtral up, 4096
  // tokens, H200: 2.44 to 2.14 GB, 2450 to 2431 us; where X of an expert is 30 MB it gains nothing, however much is kept).
  static constexpr int kept_bytes = 8 << 20;
  static __device__ __forceinline__ int kept_columns(const Tiles& scheduler) {
    const int round = Tiles::round(), last = scheduler.end_tile - 1, tile = scheduler.index - round;
    return last / round > tile / round ? kept_bytes / 2 / scheduler.expert_m : 0;
  }
  // The next tile, found by one warp and read by all others.
  static __device__ __forceinline__ Tile give_tile(const Args& args, Shared& shared, Slot& slot) {
    Tiles scheduler = shared.scheduler;
    const bool first = slot.count == 0;
    const LastRound* last_round = nullptr;
    if constexpr (Split::shares) {
      if (first) scheduler.cut(Tiles::depth(args), dynamic, &shared.last_round);
      last_round = &shared.last_round;
    } else if constexpr (Config::split > 1) {
      if (first) scheduler.cut(Tiles::depth(args), dynamic);
    }
    if constexpr (Shape::mix > 0)
      if (first) scheduler.tiles = scheduler.all_tiles();
    if constexpr (dynamic) {
      barrier_wait(at(shared.tile_empty, slot.index()), slot.parity() ^ 1);  // not before the block has time for it
      if constexpr (Shape::mix > 0) {
        scheduler.index = Order::take(args, scheduler, first);
      } else if (!first) {  // that is the block's own: no need to ask
        if (threadIdx.x % 32 == 0) scheduler.index = gridDim.x + atomicAdd(args.counters, 1);
        scheduler.index = __shfl_sync(~0u, scheduler.index, 0);
      }
    }
    Tile tile;
    if (scheduler.next(tile, last_round)) {
      if constexpr (by_pointers) locate(args, scheduler, tile);
      if constexpr (gathers_first)
        if (!first) Gather::template wait<32>(args, tile);
      if constexpr (keeps) tile.kept = tile.piece == -1 ? kept_columns(scheduler) : 0;
    } else {
      tile.expert = -1, tile.rows = 0;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      shared.scheduler = scheduler;
      if constexpr (!dynamic) barrier_wait(at(shared.tile_empty, slot.index()), slot.parity() ^ 1);
      shared.tiles[slot.index()] = tile;
      barrier_arrive(at(shared.tile_full, slot.index()));
    }
    __syncwarp();
    ++slot.count;
    return tile;
  }
  // The last block leaves the counters as it found them. One lane of the block calls this, when it has no more tiles.
  static __device__ __forceinline__ void leave(const Args& args, const Shared& shared) {
    if (atomicAdd(args.counters + 1, 1) == gridDim.x - 1) {
      args.counters[0] = args.counters[1] = 0;
      if constexpr (Shape::mix > 0) args.counters[taken_from_ends] = args.counters[taken_from_ends + 1] = 0;
      if constexpr (gathers_first) Gather::forget(args, shared.scheduler.window_rows);  // all, when there are no more tiles
    }
  }
  static __device__ __forceinline__ void end_tiles(const Args& args, const Shared& shared) {
    if constexpr (dynamic && !gathers_first)
      if (threadIdx.x % 32 == 0) leave(args, shared);
  }

  // Tiles that need the same rows of W or X find them in L2 while they are about equally far along k. Blocks drift apart
  // from tile to tile and then fetch rows from memory twice, which costs power, and with it clock. So all begin a tile
  // together (Mixtral down, 4096 tokens, H200: 1.46 in place of 2.22 GB, 1215 to 1175 us; meetings inside a tile gain no
  // bytes and starve the ring). Tiles go by numbers here: blocks have as many or one less.
  static __device__ __forceinline__ void begin_together(const Args& args, const Tile& tile, unsigned& begun) {
    if constexpr (together) {
      if constexpr (Split::shares)
        if (!tile.begins) return;
      atomicAdd(args.counters, 1);
      const unsigned all = ++begun * gridDim.x;
      while (load_relaxed(args.counters) < all) {
      }
    }
  }
  static __device__ __forceinline__ void end_loads(const Args& args, const Shared& shared) {
    if constexpr (together) {
      atomicAdd(args.counters, 1);
      __threadfence();
    }
    if constexpr (together || gathers_first) leave(args, shared);
  }
  static __device__ __forceinline__ Tile of_first_lane(const Tile& tile) {
    int words[sizeof(Tile) / sizeof(int)];
    memcpy(words, &tile, sizeof(Tile));
#pragma unroll
    for (int& word : words) word = __shfl_sync(~0u, word, 0);
    Tile result;
    memcpy(&result, words, sizeof(Tile));
    return result;
  }
  // One lane reads the slot and frees it: racecheck takes what other lanes read before a __syncwarp for still under way. No
  // lane may still be waiting then, or it could miss the slot's phase.
  static __device__ __forceinline__ Tile take_tile(Shared& shared, Slot& slot) {
    barrier_wait(at(shared.tile_full, slot.index()), slot.parity());
    __syncwarp();
    Tile tile = {};
    if (threadIdx.x % 32 == 0) {
      tile = shared.tiles[slot.index()];
      barrier_arrive(at(shared.tile_empty, slot.index()));
    }
    ++slot.count;
    return of_first_lane(tile);
  }

  static __device__ __forceinline__ void note(const Args& args, Shared& shared, Slot& slot) {
    while (true) {
      const Tile tile = take_tile(shared, slot);
      if (tile.expert < 0) break;
      Notes::note_ahead(args, shared, tile, slot);
    }
  }

  // One warp finds tiles, another loads them; the others gather rows where tiles don't, or one notes where they go. Where rows
  // are copied all four load, and the first finds tiles too.
  static __device__ __forceinline__ void produce(const Args& args, Shared& shared) {
    const int warp = threadIdx.x / 32;
    Slot slot;
    if constexpr (by_rows) {
      load_rows(args, shared, slot);
    } else if (warp == 0) {
      load(args, shared, slot);
    } else if (warp == 1) {
      while (give_tile(args, shared, slot).expert >= 0) {
      }
      end_tiles(args, shared);
    } else if constexpr (gathers_first) {
      Gather::go_on(args, shared, warp - 2);
    } else if constexpr (notes_ahead) {
      if (warp == 2) note(args, shared, slot);
    }
  }

  // The first `count` stages of a block's first tile: W is on its way while the tile's rows are gathered.
  static __device__ __forceinline__ void load_first(const Args& args, Shared& shared, const Maps& maps, const Tile& tile, typename Load::Boxes boxes,
                                                    int first, int count, int rank) {
#pragma unroll 1
    for (int i = 0; i < count; ++i) Load::template copy_boxes<false, true>(args, shared, maps, tile, boxes, i, (first + i) * block_k, rank);
    Gather::template wait<1>(args, tile);
    fence_async_global();
#pragma unroll 1
    for (int i = 0; i < count; ++i) Load::template copy_boxes<true, false>(args, shared, maps, tile, boxes, i, (first + i) * block_k, rank);
  }

  static __device__ __forceinline__ void load(const Args& args, Shared& shared, Slot& slot) {
    const int rank = cluster == 1 ? 0 : cluster_rank();
    Place<stages> stage;
    Maps maps;
    unsigned begun = 0;
    while (true) {
      const Tile tile = take_tile(shared, slot);
      if (tile.expert < 0) break;
      const auto steps = Split::steps_of(tile, Tiles::depth(args));
      const typename Load::Boxes boxes = Load::boxes_of(tile);
      maps.follow(args, shared, tile);
      if (elect_one()) begin_together(args, tile, begun);
      int k = steps.first;
      if constexpr (gathers_first) {
        const int count = slot.count == 1 ? min(stages, steps.end - k) : 0;
        if (elect_one()) {
          if (count > 0)
            load_first(args, shared, maps, tile, boxes, k, count, rank);
          else
            fence_async_global();
        }
        k += count;
        stage.advance(count);
      }
#pragma unroll 1
      for (; k < steps.end; ++k, stage.advance()) {
        barrier_wait(at(shared.empty, stage.index), stage.parity ^ 1);
        if (elect_one()) Load::template copy_boxes<true, true>(args, shared, maps, tile, boxes, stage.index, k * block_k, rank);
      }
      __syncwarp();
    }
    if (threadIdx.x == 0) end_loads(args, shared);
  }

  // So many steps before its end a tile's producer asks for the next, whose rows' numbers come from memory.
  static constexpr int ahead = 2;

  static __device__ __forceinline__ void load_rows(const Args& args, Shared& shared, Slot& slot) {
    const int rank = cluster == 1 ? 0 : cluster_rank();
    const auto begin = [&] { return threadIdx.x < 32 ? give_tile(args, shared, slot) : take_tile(shared, slot); };
    Place<stages> stage;
    Maps maps;
    typename Load::Rows rows;
    unsigned begun = 0, turn = 0;
    Tile next = begin();
    rows.ask(args, next);
    for (; next.expert >= 0; ++turn) {
      const Tile tile = next;
      const auto steps = Split::steps_of(tile, Tiles::depth(args));
      if constexpr (by_boxes)
        if (threadIdx.x < 32) maps.follow(args, shared, tile);
      const typename Load::Boxes boxes = Load::boxes_of(tile);
      rows.give(shared, turn);
      rows.take(args, shared, tile, turn);
      const char* w = nullptr;
      if constexpr (w_by_rows) w = Load::find_w(args, tile);
      if (threadIdx.x == 0) begin_together(args, tile, begun);
#pragma unroll 1
      for (int k = steps.first; k < steps.end; ++k, stage.advance()) {
        if (k == max(steps.first, steps.end - ahead)) {
          next = begin();
          rows.ask(args, next);
          rows.take(args, shared, tile, turn);  // again, for registers are few while a tile is found
        }
        barrier_wait(at(shared.empty, stage.index), stage.parity ^ 1);
        if constexpr (by_boxes)
          if (threadIdx.x == 0) Load::template copy_boxes<true, true>(args, shared, maps, tile, boxes, stage.index, k * block_k, rank);
        if constexpr (w_by_rows) Load::copy_w_rows(args, shared, tile, w, stage.index, k * block_k);
        if constexpr (x_by_rows) Load::copy_x_rows(args, shared, tile, rows, stage.index, k * block_k);
        barrier_arrive_after_copies(__shfl_sync(~0u, at(shared.full, stage.index), 0));  // or the assembler loops over the lanes' addresses
      }
      __syncwarp();
    }
    if (threadIdx.x < 32) end_tiles(args, shared);
    if (threadIdx.x == 0) end_loads(args, shared);
  }

  // ---- consumers

  static __device__ __forceinline__ void release(unsigned empty) {
    if constexpr (cluster == 1) {
      if (threadIdx.x % 128 == 0) barrier_arrive(empty);
    } else {
      if (threadIdx.x % 128 < cluster) barrier_arrive_at(empty, threadIdx.x % 128);
    }
  }

  // Where the first stage's operands begin, as descriptors have it. A shuffle, here and elsewhere, tells the compiler what is
  // alike in all lanes; it keeps that once a warp then, and 55 to 60 instructions lie between two stages in place of 80 to 92
  // (power for 0.2 to 1.9 % of the time, 4096 tokens, H200).
  struct Operands {
    unsigned a, b;
  };
  static __device__ __forceinline__ Operands first_operands(const Shared& shared, int first_group) {
    return {__shfl_sync(~0u, descriptor_low(shared_address(swapped ? shared.w[0] : shared.x[0]) + first_group * 64 * row_bytes), 0),
            __shfl_sync(~0u, descriptor_low(shared_address(swapped ? shared.x[0] : shared.w[0])), 0)};
  }

  // The tile's product: k_steps stages. `columns` of the N side are multiplied; 0 lets the stages pass.
  template <int columns>
  static __device__ __forceinline__ void multiply(Shared& shared, Place<stages>& stage, int k_steps, const Operands& first, Sums& sum) {
    constexpr int behind = columns > 0 ? Config::in_flight : 0;  // stages that are still read when the next is multiplied
    if constexpr (pingpong || scatters) stage.index = __shfl_sync(~0u, stage.index, 0);
    unsigned before = 0;  // empty[] of the stage before
#pragma unroll 1
    for (int k = 0; k < k_steps; ++k) {
      barrier_wait(at(shared.full, stage.index), stage.parity);
      if constexpr (columns > 0) {
        if constexpr (by_rows) fence_async_shared();
        const unsigned a = first.a + stage.index * (side * block_k * 2 / 16);
        const unsigned b = first.b + stage.index * (width * block_k * 2 / 16);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < block_k / 16; ++step)
#pragma unroll
          for (int g = 0; g < groups; ++g)
            wgmma<Element, columns>(sum[g], operand_descriptor(a + step / 4 * (side * row_bytes / 16) + g * (64 * row_bytes / 16) + step % 4 * 2),
                                    operand_descriptor(b + step / 4 * (width * row_bytes / 16) + step % 4 * 2), step > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<behind>();
      } else {
        warpgroup_sync();  // without wgmma nothing keeps the warps together
      }
      const unsigned empty = at(shared.empty, stage.index);
      if (behind == 0)
        release(empty);
      else if (k > 0)
        release(before);
      before = empty;
      stage.advance();
    }
    if constexpr (columns > 0) {
      wgmma_wait<0>();
      // Nothing that reads the sums may be moved up before the wait.
#pragma unroll
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int i = 0; i < columns / 2; ++i) asm volatile("" : "+f"(sum[g][i])::"memory");
    }
    if constexpr (behind > 0) {
      release(before);
    }
  }

  // Swapped, the N side is as wide as the tile has rows, in wgmma's steps of 8.
  template <int columns>
  static __device__ __forceinline__ void multiply_rows(Shared& shared, Place<stages>& stage, int k_steps, const Operands& first, int rows, Sums& sum) {
    if constexpr (columns < width) {
      if (rows > columns)
        multiply_rows<columns + 8>(shared, stage, k_steps, first, rows, sum);
      else
        multiply<columns>(shared, stage, k_steps, first, sum);
    } else {
      multiply<width>(shared, stage, k_steps, first, sum);
    }
  }

  static __device__ __forceinline__ void consume(const Args& args, Shared& shared) {
    const int consumer = __shfl_sync(~0u, threadIdx.x / 128, 0) - 1;
    const int first_group = pingpong ? 0 : consumer * groups;
    Place<stages> stage;
    typename Store::Hold hold;
    Slot slot;
    if (pingpong && consumer == 1) named_arrive(2, 256);
    while (true) {
      const bool other = pingpong && slot.index() % 2 != consumer;  // the tile is the other warpgroup's
      const Tile tile = take_tile(shared, slot);
      if (tile.expert < 0) break;
      const auto steps = Split::steps_of(tile, Tiles::depth(args));
      const int k_steps = steps.end - steps.first;
      if (other) {
        stage.advance(k_steps);
        continue;
      }
      Store::make_room(args, shared, tile, consumer, first_group, hold);
      Notes::begin(args, shared, tile, consumer, slot);
      Sums sum;
      if constexpr (pingpong) named_sync(2 + consumer, 256);
      const Operands first = first_operands(shared, first_group);  // anew for each tile, or it isn't taken for alike
      const bool busy = swapped ? tile.rows > 0 : tile.rows > first_group * 64;
      if (!busy)
        multiply<0>(shared, stage, k_steps, first, sum);
      else if constexpr (swapped)
        multiply_rows<8>(shared, stage, k_steps, first, tile.rows, sum);
      else
        multiply<width>(shared, stage, k_steps, first, sum);
      if constexpr (pingpong) named_arrive(3 - consumer, 256);
      Notes::wait(shared, slot);
      const auto rows = Notes::rows_of(shared, consumer, slot);
      const auto store = [&](const auto& sums) { Store::store(args, shared, tile, consumer, first_group, rows, hold, sums); };
      if constexpr (Split::shares)
        if (tile.piece < -1 && busy) Split::wait_for_parts(args, tile, consumer);
      if (Config::split == 1 || tile.piece < 0) {
        store(typename Split::Own{sum, args, tile, consumer});
      } else if constexpr (Split::shares) {
        if (busy) Split::leave_part(args, tile, consumer, sum);
      } else if constexpr (Config::split > 1) {
        if (busy && Split::leave_sums(args, shared, tile, consumer, sum)) store(typename Split::Total{Split::pieces_of(args, tile, consumer)});
      }
    }
    Store::store_held(args, shared, consumer, first_group, hold);
    Store::template wait_for_copies<swapped ? 128 : 32, 0>();
  }

  static __device__ __forceinline__ void run(const Args& args) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    Maps::begin(args, shared);
    if (threadIdx.x == 0) {
      if constexpr (!w_by_rows && !by_pointers) prefetch_map(args.w_map);
      if constexpr (!x_by_rows && !by_pointers) prefetch_map(args.x_map);
      if constexpr (Shape::rests) prefetch_map(args.x_rest_map);
      if constexpr (copies_boxes) prefetch_map(args.y_map);
      for (int i = 0; i < stages; ++i) {
        barrier_init(at(shared.full, i), (by_boxes ? 1 : 0) + (by_rows ? 128 : 0));
        barrier_init(at(shared.empty, i), (pingpong ? 1 : consumers) * cluster);
      }
      for (int i = 0; i < tile_slots; ++i) {
        barrier_init(at(shared.tile_full, i), 1);
        barrier_init(at(shared.tile_empty, i), 4 * consumers + (by_rows ? 3 : notes_ahead ? 2 : 1));  // warps that read a tile
      }
      Notes::init(shared);
      fence_barrier_init();
      shared.scheduler = Tiles(args);
      shared.scheduler.m_sizes = shared.m_sizes;  // a scan reads no memory
    }
    for (int i = threadIdx.x; i < Config::experts; i += 128 * (1 + consumers)) shared.m_sizes[i] = args.m_sizes[i];
    __syncthreads();
    if constexpr (cluster > 1) cluster_sync();
    Order::sort(shared);
    Gather::begin(args, shared);

    if (threadIdx.x < 128) {
      if constexpr (consumers > 1) registers_down<Config::producer_registers>();
      produce(args, shared);
    } else {
      if constexpr (consumers > 1) registers_up<Config::consumer_registers>();
      consume(args, shared);
    }
    // No block may leave while others still copy into it or arrive at its barriers.
    if constexpr (cluster > 1) cluster_sync();
  }
};

}  // namespace moetune
