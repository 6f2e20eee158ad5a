// The mma variant: persistent blocks, a cp.async ring, ldmatrix and mma.sync; sm_80 and up, any m, n and k.
// The ring runs on over tile borders: while a tile's last steps are multiplied, the next tile's first are loading.
#pragma once
#include "epilogue.cuh"
#include "scheduler.cuh"
#include "tile.cuh"

namespace moetune {

template <class Config>
struct Mma {
  using Element = typename Config::Element;
  static constexpr int block_m = Config::block_m, block_n = Config::block_n, block_k = Config::block_k;
  static constexpr int stages = Config::stages, warps = Config::warps, threads = 32 * warps;
  static constexpr int warp_m = block_m / Config::warps_m, warp_n = block_n / Config::warps_n;
  static constexpr int k_steps = block_k / 16;  // mma steps in a stage
  static constexpr int chunks = Swizzle<block_k>::chunks;
  static constexpr int row_step = threads / chunks;  // rows that all threads copy at once, a chunk each
  static constexpr int x_copies = (block_m + row_step - 1) / row_step;
  static constexpr int w_copies = (block_n + row_step - 1) / row_step;
  static constexpr int staging_stride = warp_n + 8;  // elements; the pad spreads rows over the banks

  static_assert(Config::warps_m * Config::warps_n == warps, "the warp grid must use every warp");
  static_assert(block_m % (16 * Config::warps_m) == 0, "a warp's rows come in mma tiles of 16");
  static_assert(block_n % (16 * Config::warps_n) == 0, "a warp's columns come in ldmatrix pairs of 16");
  static_assert(stages >= 2, "one stage is multiplied while another is filled");

  // Tiles that are under way: the loader writes one when it begins it, the epilogue reads it when it is multiplied. The
  // loader is at most stages - 1 steps ahead, so that eight slots never meet.
  static constexpr int tile_slots = 8;

  struct Shared {
    Element x[stages][block_m * block_k];
    Element w[stages][block_n * block_k];
    Element staging[warps][16 * staging_stride];
    Tile tiles[tile_slots];          // rows = 0 ends the sequence
    Scheduler<Config> scheduler;     // here and not in registers: it is needed once a tile
  };
  static_assert(sizeof(Shared) == Config::shared_bytes, "the host's plan and the kernel disagree on shared memory");

  // Copies stage after stage, tile after tile; runs ahead of the multiplication.
  struct Loader {
    const Args& args;
    Shared& shared;
    int slot = 0;  // of the tile that is loading
    int k_first = 0;
    int stage = 0;
    int x_rows[Config::permute_x ? x_copies : 1];

    __device__ __forceinline__ Loader(const Args& a, Shared& s) : args(a), shared(s) {}

    // Warp 0 puts the next tile into `slot`; the others may read it behind the next barrier.
    __device__ __forceinline__ void find_tile() {
      if (threadIdx.x >= 32) return;
      Scheduler<Config> scheduler = shared.scheduler;
      Tile tile;
      if (!scheduler.next(tile)) tile.rows = 0;
      __syncwarp();
      if (threadIdx.x == 0) {
        shared.tiles[slot] = tile;
        shared.scheduler = scheduler;
      }
    }

    // Part `part` of `parts` of one stage, so that copies spread between the mma steps.
    template <int part, int parts>
    __device__ __forceinline__ void load() {
      const Tile tile = shared.tiles[slot];
      if (tile.rows == 0) return;
      const int row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
      if constexpr (Config::permute_x && part == 0)
        if (k_first == 0) {
#pragma unroll
          for (int i = 0; i < x_copies; ++i)
            x_rows[i] = static_cast<int>(source_row<Config>(args, tile.row + min(row + i * row_step, tile.rows - 1)));
        }
      const long long k = args.k;
      const int depth = k_first + chunk * 8;
      // Past the end of k zeros are written: on both sides, for a NaN times zero would still be NaN.
      const int valid = static_cast<int>(max(0ll, min(16ll, (k - depth) * 2)));
      constexpr int x_per_part = (x_copies + parts - 1) / parts, w_per_part = (w_copies + parts - 1) / parts;
      const Element* x = static_cast<const Element*>(args.x) + depth;
      const unsigned x_shared = shared_address(shared.x[stage]), w_shared = shared_address(shared.w[stage]);
#pragma unroll
      for (int i = part * x_per_part; i < min(x_copies, (part + 1) * x_per_part); ++i) {
        const int r = row + i * row_step;
        if (block_m % row_step != 0 && r >= block_m) break;
        // Rows past the expert's end repeat its last row; what comes of them is never stored.
        long long source;
        if constexpr (Config::permute_x) source = x_rows[i];
        else source = tile.row + min(r, tile.rows - 1);
        copy_chunk<Config::load_bytes>(x_shared + Swizzle<block_k>::offset(r, chunk), x + source * k, valid);
      }
      const Element* w = static_cast<const Element*>(args.w) + static_cast<long long>(tile.expert) * args.n * k + depth;
#pragma unroll
      for (int i = part * w_per_part; i < min(w_copies, (part + 1) * w_per_part); ++i) {
        const int r = row + i * row_step;
        if (block_n % row_step != 0 && r >= block_n) break;
        const int source = min(tile.n + r, static_cast<int>(args.n) - 1);
        copy_chunk<Config::load_bytes>(w_shared + Swizzle<block_k>::offset(r, chunk), w + source * k, valid);
      }
    }

    // Closes the stage, also where nothing was left to load, so that group counts stay the same. True where a new tile
    // was begun. A barrier must follow before the next load.
    __device__ __forceinline__ bool commit() {
      cp_async_commit();
      stage = stage + 1 == stages ? 0 : stage + 1;
      k_first += block_k;
      if (k_first < args.k) return false;
      k_first = 0;
      if (shared.tiles[slot].rows == 0) return false;
      slot = (slot + 1) % tile_slots;
      find_tile();
      return true;
    }
  };

  struct Fragments {
    unsigned x[warp_m / 16][4];
    unsigned w[warp_n / 16][4];
  };

  static __device__ __forceinline__ void load_fragments(Fragments& f, const Shared& shared, int stage, int k_step, int m0, int n0) {
    const int lane = threadIdx.x % 32;
    const unsigned x = shared_address(shared.x[stage]), w = shared_address(shared.w[stage]);
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i)  // matrices: rows 0-7, rows 8-15, then the same 8 further along k
      ldmatrix_x4(f.x[i], x + Swizzle<block_k>::offset(m0 + i * 16 + lane % 16, k_step * 2 + lane / 16));
#pragma unroll
    for (int i = 0; i < warp_n / 16; ++i)  // matrices: columns 0-7 at k and k + 8, then columns 8-15
      ldmatrix_x4(f.w[i], w + Swizzle<block_k>::offset(n0 + i * 16 + lane / 16 * 8 + lane % 8, k_step * 2 + lane / 8 % 2));
  }

  using Accumulators = float[warp_m / 16][warp_n / 8][4];

  static __device__ __forceinline__ void multiply(Accumulators& sum, const Fragments& f) {
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i)
#pragma unroll
      for (int j = 0; j < warp_n / 8; ++j) {
        // Back and forth along n: the last column's fragment serves the next row at once.
        const int column = i % 2 ? warp_n / 8 - 1 - j : j;
        mma_m16n8k16<Element>(sum[i][column], f.x[i], f.w[column / 2][column % 2 * 2], f.w[column / 2][column % 2 * 2 + 1]);
      }
  }

  // A warp writes its part of the tile 16 rows at a time through its own staging rows, so that a row leaves in 16-byte
  // pieces and no other warp has to wait.
  static __device__ __forceinline__ void store(const Args& args, const Tile tile, const Accumulators& sum, Element* staging, int m0, int n0) {
    const int lane = threadIdx.x % 32;
    Element* y = static_cast<Element*>(args.y);
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i) {
      if (m0 + i * 16 >= tile.rows) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + half * 8;
        const float weight = row_weight<Config>(args, tile.row + min(m0 + i * 16 + r, tile.rows - 1));
#pragma unroll
        for (int j = 0; j < warp_n / 8; ++j) {
          const unsigned pair = pack<Element>(finish<Config>(sum[i][j][half * 2], weight), finish<Config>(sum[i][j][half * 2 + 1], weight));
          *reinterpret_cast<unsigned*>(staging + r * staging_stride + j * 8 + lane % 4 * 2) = pair;
        }
      }
      __syncwarp();
      constexpr int width = Config::store_bytes / 2;  // elements a store
      constexpr int pieces = warp_n / width;
#pragma unroll
      for (int at = lane; at < 16 * pieces; at += 32) {
        const int r = at / pieces, c = at % pieces * width;
        const int row = m0 + i * 16 + r;
        const long long column = tile.n + n0 + c;
        if (row < tile.rows && column < args.n) {
          Element* target = y + target_row<Config>(args, tile.row + row) * args.n + column;
          const Element* source = staging + r * staging_stride + c;
          if constexpr (Config::store_bytes == 16)
            *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
          else if constexpr (Config::store_bytes == 4)
            *reinterpret_cast<unsigned*>(target) = *reinterpret_cast<const unsigned*>(source);
          else
            *target = *source;
        }
      }
      __syncwarp();
    }
  }

  template <int step>
  static __device__ __forceinline__ void k_step(Loader& loader, Fragments (&f)[2], Accumulators& sum, const Shared& shared, int& stage, int m0, int n0) {
    if constexpr (step == k_steps - 1) {
      // The next stage has landed, and every warp holds its last fragments of this one: it may be overwritten.
      loader.commit();
      cp_async_wait<stages - 2>();
      __syncthreads();
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
    load_fragments(f[(step + 1) % 2], shared, stage, (step + 1) % k_steps, m0, n0);
    if constexpr (step < k_steps - 1) loader.template load<step, k_steps - 1>();
    multiply(sum, f[step % 2]);
    if constexpr (step + 1 < k_steps) k_step<step + 1>(loader, f, sum, shared, stage, m0, n0);
  }

  static __device__ __forceinline__ void run(const Args& args) {
    extern __shared__ __align__(128) char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int warp = threadIdx.x / 32;
    const int m0 = warp / Config::warps_n * warp_m, n0 = warp % Config::warps_n * warp_n;

    if (threadIdx.x == 0) shared.scheduler = Scheduler<Config>(args);
    __syncwarp();
    Loader loader(args, shared);
    loader.find_tile();
    __syncthreads();
    for (int i = 0; i < stages - 1; ++i) {
      loader.template load<0, 1>();
      if (loader.commit()) __syncthreads();
    }
    cp_async_wait<stages - 2>();
    __syncthreads();

    Fragments fragments[2];
    int stage = 0;
    load_fragments(fragments[0], shared, stage, 0, m0, n0);
    for (int slot = 0; shared.tiles[slot].rows > 0; slot = (slot + 1) % tile_slots) {
      Accumulators sum = {};
      for (int k = 0; k < args.k; k += block_k) k_step<0>(loader, fragments, sum, shared, stage, m0, n0);
      store(args, shared.tiles[slot], sum, shared.staging[warp], m0, n0);
    }
    cp_async_wait<0>();
  }
};

}  // namespace moetune
