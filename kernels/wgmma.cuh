// The wgmma variant: persistent, warp-specialised blocks for sm_90a. A producer warpgroup fills a ring of stages with
// tensor copies (or gathers rows of X with cp.async), one to three consumer warpgroups multiply and store.
// W may stand on wgmma's M side and the rows of X on its N side ("swapped"): tiles are then as high as their rows.
#pragma once
#include "epilogue.cuh"
#include "hopper_ptx.cuh"
#include "scheduler.cuh"
#include "tile.cuh"
#include "wgmma_ptx.cuh"

namespace moetune {

template <class Config>
struct Wgmma {
  using Element = typename Config::Element;
  static constexpr int block_m = Config::block_m, block_n = Config::block_n, block_k = Config::block_k;
  static constexpr int stages = Config::stages, consumers = Config::consumers;
  static constexpr int consumer_threads = 128 * consumers;
  static constexpr bool swapped = Config::swap, pingpong = Config::schedule == 1, gathers = !Config::tma_x;
  static constexpr int cluster_m = Config::cluster == 1 ? 2 : 1, cluster_n = Config::cluster == 2 ? 2 : 1;
  static constexpr int cluster = cluster_m * cluster_n;
  static constexpr bool weighs = Config::topk_weights, scatters = Config::permute_y;

  // wgmma's M side: groups of 64 rows a warpgroup; its N side.
  static constexpr int side = swapped ? block_n : block_m;
  static constexpr int groups = side / 64 / (pingpong ? 1 : consumers);
  static constexpr int width = swapped ? block_m : block_n;
  static constexpr int halves = block_k / 64;  // a row of shared memory is 64 elements, its swizzle's 128 bytes
  static constexpr int row_bytes = 128;
  static constexpr int x_boxes = block_m / Config::x_box;
  static constexpr bool dynamic = Config::tiles == 1;
  // Tiles on their way. Few, so that a block takes no tile long before it has time for it; even, for ping-pong's turns.
  static constexpr int tile_slots = pingpong ? 4 : 1;

  static_assert(side % (64 * (pingpong ? 1 : consumers)) == 0, "a warpgroup multiplies whole groups of 64 rows");
  static_assert(block_m % 16 == 0 && block_n % 16 == 0, "stmatrix stores 16 rows and columns at a time");
  static_assert(block_m % Config::x_box == 0 && Config::x_box % 8 == 0, "boxes of X are whole swizzle groups");
  static_assert(!pingpong || consumers == 2, "two warpgroups play ping-pong");
  static_assert(!(gathers && cluster_n > 1), "gathered rows go to one block only");
  static_assert(!(dynamic && cluster > 1), "the blocks of a cluster would take different tiles");

  using Sums = float[groups][width / 2];

  // Results pass through shared memory so that rows leave in long pieces: planes of `staged_rows` rows of Y, 64 columns
  // wide, in the swizzle that tensor copies know. Swapped, a warpgroup stages together, two buffers in turn; else every
  // warp its own 16 rows.
  static constexpr int staged_rows = swapped ? 32 : 16;
  static constexpr int planes = swapped ? groups : 1;
  static constexpr int plane = staged_rows * 64;
  static constexpr int staged = (swapped ? 2 : 4) * planes * plane;
  static constexpr bool copies_out = Config::tma_store;
  static_assert(!(copies_out && scatters), "tensor copies don't scatter rows");

  struct Fused {  // of the rows of a warpgroup's tile
    float weight[block_m];
    int target[block_m];
  };
  struct Nothing {};
  template <bool condition, class T>
  struct If {
    using type = T;
  };
  template <class T>
  struct If<false, T> {
    using type = Nothing;
  };

  using Tiles = Scheduler<Config, cluster_m, cluster_n, swapped ? 8 : 0>;

  struct Shared {
    alignas(1024) Element w[stages][block_n * block_k];  // [halves][block_n][64]
    alignas(1024) Element x[stages][block_m * block_k];
    alignas(1024) Element staging[consumers][staged];
    Tiles scheduler;         // here and not in registers: it is needed once a tile
    int m_sizes[Config::experts];
    Tile tiles[tile_slots];  // expert < 0 ends them
    unsigned long long full[stages], empty[stages], tile_full[tile_slots], tile_empty[tile_slots];
    typename If<weighs || scatters, Fused>::type fused[consumers];
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
  static __device__ __forceinline__ int depth(const Args& args) { return static_cast<int>((args.k + block_k - 1) / block_k); }

  // ---- producer

  // Tensor copies of one stage. Of what the blocks of a cluster share each loads a part, for all.
  static __device__ __forceinline__ void copy_boxes(const Args& args, Shared& shared, const Tile& tile, int boxes, int stage, int k, int rank) {
    const unsigned full = at(shared.full, stage);
    constexpr unsigned short everyone = (1 << cluster) - 1;
    barrier_arrive_expect(full, (block_n + (gathers ? 0 : boxes * Config::x_box)) * block_k * 2);
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const unsigned w = shared_address(shared.w[stage]) + half * block_n * row_bytes;
      const int w_row = tile.expert * static_cast<int>(args.n) + tile.n;
      if constexpr (cluster_m > 1)
        load_box_to_all(w + rank * (block_n / 2) * row_bytes, args.w_map, full, w_row + rank * (block_n / 2), k + half * 64, everyone);
      else
        load_box(w, args.w_map, full, w_row, k + half * 64);
      if constexpr (!gathers) {
        const unsigned x = shared_address(shared.x[stage]) + half * block_m * row_bytes;
#pragma unroll
        for (int box = 0; box < x_boxes; ++box) {
          if (box >= boxes) break;
          const unsigned to = x + box * Config::x_box * row_bytes;
          const int row = tile.row + box * Config::x_box;
          if constexpr (cluster_n > 1) {
            if (box % 2 == rank) load_box_to_all(to, args.x_map, full, row, k + half * 64, everyone);
          } else {
            load_box(to, args.x_map, full, row, k + half * 64);
          }
        }
      }
    }
  }

  // Gathering: every thread of the warpgroup copies one 16-byte chunk of every 16th row.
  static constexpr int gathered_rows = block_m / 16;
  static __device__ __forceinline__ void find_rows(const Args& args, const Tile& tile, int (&rows)[gathered_rows]) {
    const int first = threadIdx.x % 128 / 8;
#pragma unroll
    for (int i = 0; i < gathered_rows; ++i)
      rows[i] = first + i * 16 < tile.rows ? static_cast<int>(source_row<Config>(args, tile.row + first + i * 16)) : -1;
  }
  static __device__ __forceinline__ void copy_rows(const Args& args, Shared& shared, const int (&rows)[gathered_rows], int stage, int k) {
    const int first = threadIdx.x % 128 / 8, chunk = threadIdx.x % 8;
    const unsigned x = shared_address(shared.x[stage]) + first * row_bytes + (chunk ^ first % 8) * 16;
#pragma unroll
    for (int half = 0; half < halves; ++half) {
      const int column = k + half * 64 + chunk * 8;
      const char* from = static_cast<const char*>(args.x) + column * 2;
#pragma unroll
      for (int i = 0; i < gathered_rows; ++i) {
        int row = rows[i];
        asm volatile("" : "+r"(row));  // keeps addresses from being made ahead of the loop: registers are few
        if (row >= 0) cp_async<16>(x + (half * block_m + i * 16) * row_bytes, from + row * args.k * 2, column < args.k);
      }
    }
    barrier_arrive_after_copies(at(shared.full, stage));
  }

  // The next tile, found by one warp and read by all others.
  static __device__ __forceinline__ Tile give_tile(const Args& args, Shared& shared, Slot& slot) {
    Tiles scheduler = shared.scheduler;
    if constexpr (dynamic) {
      barrier_wait(at(shared.tile_empty, slot.index()), slot.parity() ^ 1);  // not before the block has time for it
      if (slot.count > 0) {  // the first is the block's own: no need to ask
        if (threadIdx.x % 32 == 0) scheduler.index = gridDim.x + atomicAdd(args.counters, 1);
        scheduler.index = __shfl_sync(~0u, scheduler.index, 0);
      }
    }
    Tile tile;
    if (!scheduler.next(tile)) tile.expert = -1;
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
  // The last block leaves the counters as it found them.
  static __device__ __forceinline__ void end_tiles(const Args& args) {
    if constexpr (dynamic)
      if (threadIdx.x % 32 == 0 && atomicAdd(args.counters + 1, 1) == gridDim.x - 1) args.counters[0] = args.counters[1] = 0;
  }
  static __device__ __forceinline__ Tile take_tile(Shared& shared, Slot& slot) {
    barrier_wait(at(shared.tile_full, slot.index()), slot.parity());
    const Tile tile = shared.tiles[slot.index()];
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(at(shared.tile_empty, slot.index()));
    ++slot.count;
    return tile;
  }

  // One warp finds tiles, another loads them; where rows are gathered all four do, and the first finds tiles too.
  static __device__ __forceinline__ void produce(const Args& args, Shared& shared) {
    const int warp = threadIdx.x / 32;
    Slot slot;
    if constexpr (gathers) {
      gather(args, shared, slot);
    } else if (warp == 0) {
      load(args, shared, slot);
    } else if (warp == 1) {
      while (give_tile(args, shared, slot).expert >= 0) {
      }
      end_tiles(args);
    }
  }

  static __device__ __forceinline__ void load(const Args& args, Shared& shared, Slot& slot) {
    const int rank = cluster == 1 ? 0 : cluster_rank();
    const int k_steps = depth(args);
    Place<stages> stage;
    while (true) {
      const Tile tile = take_tile(shared, slot);
      if (tile.expert < 0) break;
      const int boxes = (tile.rows + Config::x_box - 1) / Config::x_box;
      if (threadIdx.x == 0)
#pragma unroll 1
        for (int k = 0; k < k_steps; ++k, stage.advance()) {
          barrier_wait(at(shared.empty, stage.index), stage.parity ^ 1);
          copy_boxes(args, shared, tile, boxes, stage.index, k * block_k, rank);
        }
      __syncwarp();
    }
  }

  static __device__ __forceinline__ void gather(const Args& args, Shared& shared, Slot& slot) {
    const int rank = cluster == 1 ? 0 : cluster_rank();
    const int k_steps = depth(args);
    Place<stages> stage;
    while (true) {
      const Tile tile = threadIdx.x < 32 ? give_tile(args, shared, slot) : take_tile(shared, slot);
      if (tile.expert < 0) break;
      int rows[gathered_rows];
      find_rows(args, tile, rows);
#pragma unroll 1
      for (int k = 0; k < k_steps; ++k, stage.advance()) {
        barrier_wait(at(shared.empty, stage.index), stage.parity ^ 1);
        if (threadIdx.x == 0) copy_boxes(args, shared, tile, 0, stage.index, k * block_k, rank);
        copy_rows(args, shared, rows, stage.index, k * block_k);
      }
      __syncwarp();
    }
    if (threadIdx.x < 32) end_tiles(args);
  }

  // ---- consumers

  static __device__ __forceinline__ int before(int stage) { return stage == 0 ? stages - 1 : stage - 1; }

  static __device__ __forceinline__ void warpgroup_sync() { named_sync(8 + threadIdx.x / 128, 128); }

  static __device__ __forceinline__ void release(Shared& shared, int stage) {
    if constexpr (cluster == 1) {
      if (threadIdx.x % 128 == 0) barrier_arrive(at(shared.empty, stage));
    } else {
      if (threadIdx.x % 128 < cluster) barrier_arrive_at(at(shared.empty, stage), threadIdx.x % 128);
    }
  }

  // The tile's product: k_steps stages. `columns` of the N side are multiplied; 0 lets the stages pass.
  template <int columns>
  static __device__ __forceinline__ void multiply(Shared& shared, Place<stages>& stage, int k_steps, int first_group, Sums& sum) {
    constexpr int behind = columns > 0 ? Config::in_flight : 0;  // stages that are still read when the next is multiplied
    const unsigned a0 = descriptor_low(shared_address(swapped ? shared.w[0] : shared.x[0]) + first_group * 64 * row_bytes);
    const unsigned b0 = descriptor_low(shared_address(swapped ? shared.x[0] : shared.w[0]));
#pragma unroll 1
    for (int k = 0; k < k_steps; ++k) {
      barrier_wait(at(shared.full, stage.index), stage.parity);
      if constexpr (columns > 0) {
        if constexpr (gathers) fence_async_shared();
        const unsigned a = a0 + stage.index * (side * block_k * 2 / 16);
        const unsigned b = b0 + stage.index * (width * block_k * 2 / 16);
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
      if (k >= behind) release(shared, behind == 0 ? stage.index : before(stage.index));
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
      release(shared, before(stage.index));
    }
  }

  // Swapped, the N side is as wide as the tile has rows, in wgmma's steps of 8.
  template <int columns>
  static __device__ __forceinline__ void multiply_rows(Shared& shared, Place<stages>& stage, int k_steps, int first_group, int rows, Sums& sum) {
    if constexpr (columns < width) {
      if (rows > columns)
        multiply_rows<columns + 8>(shared, stage, k_steps, first_group, rows, sum);
      else
        multiply<columns>(shared, stage, k_steps, first_group, sum);
    } else {
      multiply<width>(shared, stage, k_steps, first_group, sum);
    }
  }

  static __device__ __forceinline__ void note_rows(const Args& args, Shared& shared, const Tile& tile, int consumer) {
    if constexpr (weighs || scatters) {
      warpgroup_sync();  // the tile before is stored
      for (int r = threadIdx.x % 128; r < tile.rows; r += 128) {
        shared.fused[consumer].weight[r] = row_weight<Config>(args, tile.row + r);
        shared.fused[consumer].target[r] = static_cast<int>(target_row<Config>(args, tile.row + r));
      }
    }
  }
  static __device__ __forceinline__ float weight_of(const Shared& shared, int consumer, int row) {
    if constexpr (weighs) return shared.fused[consumer].weight[row];
    return 1.0f;
  }
  static __device__ __forceinline__ Element* target_of(const Args& args, const Shared& shared, const Tile& tile, int consumer, int row) {
    long long target = tile.row + row;
    if constexpr (scatters) target = shared.fused[consumer].target[row];
    return static_cast<Element*>(args.y) + target * args.n;
  }

  // Where 8 columns of a staged row lie.
  static __device__ __forceinline__ const Element* staged_at(const Element* staging, int row, int column) {
    return staging + column / 64 * plane + row * 64 + (column / 8 % 8 ^ row % 8) * 8;
  }

  // Staged rows to rows `row` and on of the tile, columns from `column`, by `threads` threads. Boxes of 8 whole rows leave
  // by tensor copies, if that is chosen, each issued by a thread; the others by 16 bytes a thread and turn.
  template <int threads>
  static __device__ __forceinline__ void store_rows(const Args& args, const Shared& shared, const Tile& tile, int consumer, const Element* staging, int row,
                                                    long long column) {
    const int thread = threadIdx.x % threads;
    int first = 0;  // of the rows that threads store
    if constexpr (copies_out) {
      const int boxes = min(staged_rows, tile.rows - row) / 8;
      if (thread < staged_rows / 8 * planes) {
        const int box = thread % (staged_rows / 8), part = thread / (staged_rows / 8);
        if (box < boxes && column + part * 64 < args.n)
          store_box(args.y_map, shared_address(staging + part * plane + box * 8 * 64), tile.row + row + box * 8, static_cast<int>(column) + part * 64);
        stores_commit();
      }
      first = boxes * 8;
    }
    constexpr int pieces = planes * 8;
#pragma unroll
    for (int i = thread; i < staged_rows * pieces; i += threads) {
      const int r = i / pieces, c = i % pieces * 8;
      if (r >= first && row + r < tile.rows && column + c < args.n)
        *reinterpret_cast<uint4*>(target_of(args, shared, tile, consumer, row + r) + column + c) =
            *reinterpret_cast<const uint4*>(staged_at(staging, r, c));
    }
  }
  // Before a staging buffer is written again: the copies of it that this thread issued, but for the `newer` last, are over.
  template <int threads, int newer>
  static __device__ __forceinline__ void wait_for_copies() {
    if constexpr (copies_out)
      if (threadIdx.x % threads < staged_rows / 8 * planes) stores_wait_read<newer>();
  }

  // Swapped: sum[g][4 j ...] holds columns 64 g + 16 warp + lane / 4 (and 8 on) of rows 8 j + lane % 4 * 2 (and 1 on).
  static __device__ __forceinline__ void store_swapped(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, const Sums& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    if constexpr (!copies_out) warpgroup_sync();  // the tile before has left the buffers
#pragma unroll
    for (int first = 0; first < block_m; first += staged_rows) {
      if (first >= tile.rows) break;
      // Two buffers in turn: a warp that passed the sync of one has read the other.
      Element* staging = shared.staging[consumer] + first / staged_rows % 2 * planes * plane;
      if constexpr (copies_out) {
        wait_for_copies<128, 1>();
        warpgroup_sync();
      }
#pragma unroll
      for (int r = 0; r < staged_rows && first + r < block_m; r += 16) {
        float weight[2][2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) weight[i][j] = weight_of(shared, consumer, first + r + i * 8 + lane % 4 * 2 + j);
#pragma unroll
        for (int g = 0; g < groups; ++g) {
          const float* d = sum[g] + (first + r) / 2;
          const auto two = [&](int i, int half) {
            return finish_pair<Config>(d[i * 4 + half * 2], d[i * 4 + half * 2 + 1], weight[i][0], weight[i][1]);
          };
          const int row = r + lane / 16 * 8 + lane % 8, column = g * 64 + warp * 16 + lane / 8 % 2 * 8;
          stmatrix_x4<true>(shared_address(staged_at(staging, row, column)), two(0, 0), two(0, 1), two(1, 0), two(1, 1));
        }
      }
      if constexpr (copies_out) fence_async_shared();
      warpgroup_sync();
      store_rows<128>(args, shared, tile, consumer, staging, first, tile.n + first_group * 64);
    }
  }

  // Plain: sum[g][4 j ...] holds rows 64 g + 16 warp + lane / 4 (and 8 on) of columns 8 j + lane % 4 * 2 (and 1 on).
  static __device__ __forceinline__ void store_plain(const Args& args, Shared& shared, const Tile& tile, int consumer, int first_group, const Sums& sum) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Element* staging = shared.staging[consumer] + warp * plane;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const int first = (first_group + g) * 64 + warp * 16;
      if (first >= tile.rows) break;
      const float weight[2] = {weight_of(shared, consumer, first + lane / 4), weight_of(shared, consumer, first + lane / 4 + 8)};
#pragma unroll
      for (int from = 0; from < block_n; from += 64) {
        wait_for_copies<32, 0>();
        __syncwarp();
#pragma unroll
        for (int c = 0; c < 64 && from + c < block_n; c += 16) {
          const float* d = sum[g] + (from + c) / 2;
          const auto two = [&](int i, int half) {
            return finish_pair<Config>(d[i * 4 + half * 2], d[i * 4 + half * 2 + 1], weight[half], weight[half]);
          };
          const int row = lane / 8 % 2 * 8 + lane % 8, column = c + lane / 16 * 8;
          stmatrix_x4<false>(shared_address(staged_at(staging, row, column)), two(0, 0), two(0, 1), two(1, 0), two(1, 1));
        }
        if constexpr (copies_out) fence_async_shared();
        __syncwarp();
        store_rows<32>(args, shared, tile, consumer, staging, first, tile.n + from);
      }
    }
  }

  static __device__ __forceinline__ void consume(const Args& args, Shared& shared) {
    const int consumer = threadIdx.x / 128 - 1;
    const int first_group = pingpong ? 0 : consumer * groups;
    const int k_steps = depth(args);
    Place<stages> stage;
    Slot slot;
    if (pingpong && consumer == 1) named_arrive(2, 256);
    while (true) {
      const bool other = pingpong && slot.index() % 2 != consumer;  // the tile is the other warpgroup's
      const Tile tile = take_tile(shared, slot);
      if (tile.expert < 0) break;
      if (other) {
        stage.advance(k_steps);
        continue;
      }
      note_rows(args, shared, tile, consumer);
      Sums sum;
      if constexpr (pingpong) named_sync(2 + consumer, 256);
      const bool busy = swapped ? tile.rows > 0 : tile.rows > first_group * 64;
      if (!busy)
        multiply<0>(shared, stage, k_steps, first_group, sum);
      else if constexpr (swapped)
        multiply_rows<8>(shared, stage, k_steps, first_group, tile.rows, sum);
      else
        multiply<width>(shared, stage, k_steps, first_group, sum);
      if constexpr (pingpong) named_arrive(3 - consumer, 256);
      if constexpr (!swapped && (weighs || scatters)) warpgroup_sync();
      if constexpr (swapped)
        store_swapped(args, shared, tile, consumer, first_group, sum);
      else
        store_plain(args, shared, tile, consumer, first_group, sum);
    }
    wait_for_copies<swapped ? 128 : 32, 0>();
  }

  static __device__ __forceinline__ void run(const Args& args) {
    extern __shared__ __align__(1024) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    if (threadIdx.x == 0) {
      prefetch_map(args.w_map);
      if constexpr (!gathers) prefetch_map(args.x_map);
      if constexpr (copies_out) prefetch_map(args.y_map);
      for (int i = 0; i < stages; ++i) {
        barrier_init(at(shared.full, i), 1 + (gathers ? 128 : 0));
        barrier_init(at(shared.empty, i), (pingpong ? 1 : consumers) * cluster);
      }
      for (int i = 0; i < tile_slots; ++i) {
        barrier_init(at(shared.tile_full, i), 1);
        barrier_init(at(shared.tile_empty, i), 4 * consumers + (gathers ? 3 : 1));  // warps that read a tile
      }
      fence_barrier_init();
      shared.scheduler = Tiles(args);
      shared.scheduler.m_sizes = shared.m_sizes;  // a scan reads no memory
    }
    for (int i = threadIdx.x; i < Config::experts; i += 128 * (1 + consumers)) shared.m_sizes[i] = args.m_sizes[i];
    __syncthreads();
    if constexpr (cluster > 1) cluster_sync();

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
