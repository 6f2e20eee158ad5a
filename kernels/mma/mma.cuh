// The mma variant: persistent blocks, a cp.async ring, ldmatrix and mma.sync; sm_80 and up, any m, n and k.
// The ring does not stop between tiles: while the last steps of a tile are multiplied, the first of the next are
// loaded.
#pragma once
#include "mma/mma_operands.cuh"
#include "mma/mma_quantise.cuh"
#include "mma/mma_scales.cuh"
#include "mma/mma_sums.cuh"
#include "scheduler.cuh"
#include "tile_pieces.cuh"

namespace moetune {

template <class Config>
struct Mma {
  using Element = typename Config::X::Stage;
  using Function = typename Config::Function;
  using AfterStage = typename Config::AfterStage;
  using Result = typename Function::Result;
  using Scales = MmaScalesOf<Config>;
  static constexpr MmaKnobs knobs = Config::knobs;
  static constexpr KernelProblem problem = Config::problem;
  static constexpr WarpGrid grid = warp_grid(knobs);
  static constexpr MmaLayout layout = mma_layout(knobs, problem);
  static constexpr int block_m = knobs.block_m, block_n = knobs.block_n, block_k = knobs.block_k;
  static constexpr int stages = knobs.stages, warps = knobs.warps, threads = 32 * warps, split = knobs.split;
  static constexpr int warp_m = block_m / grid.m, warp_n = block_n / grid.n;
  static constexpr int k_steps = block_k * static_cast<int>(sizeof(Element)) / 32;  // mma steps in a stage
  using X = MmaOperandOf<Config, true>;
  using W = MmaOperandOf<Config, false>;
  static constexpr int staging_pitch = mma_staging_pitch(knobs);
  static constexpr bool sums_rows = problem.x_mn_major;
  static constexpr bool steps_vary = split > 1 || sums_rows;  // from tile to tile
  static constexpr bool stores_sums = sizeof(Result) == sizeof(float);
  using Cut = typename Choice<split == 1, WholeTiles, TilePieces<split>>::type;
  using Tiles = typename Choice<sums_rows, GridScheduler<Config, Cut, GridInOrder>, Scheduler<Config, Cut>>::type;
  using TileType = typename Choice<sums_rows, TileOverRows, Tile>::type;
  using Weights = typename Choice<problem.weighs_x, MmaWeights<Config>, NoMmaWeights<Config>>::type;

  static_assert(!stores_sums || Function::columns_per_output == 1, "sums are stored as they are");
  static_assert(!problem.quantises() || block_n == Function::columns_per_output * kScaleBlock,
                "a tile has the columns of a scale");
  static_assert(AfterStage::scaled == (Scales::bytes > 0 && !Scales::at_end), "scales of blocks scale each part");
  static_assert(!AfterStage::restarts || kScaleBlock % block_k == 0, "a stage lies in one block of scales");
  static_assert(grid.m * grid.n == warps, "the warp grid must use every warp");
  static_assert(layout.scheduler % alignof(Aligned<typename Tiles::State>) == 0, "the scheduler is copied aligned");
  static_assert(8 * sizeof(Element) == problem.x_stage_bits && 8 * sizeof(Result) == problem.y_bits,
                "the problem has the sizes of the policies");
  static_assert(problem.x_scale_bytes + problem.w_scale_bytes == Scales::bytes, "the layout has room for scales");
  static_assert(stages >= 2, "one stage is multiplied while another is filled");

  // The block's shared memory.
  struct Shared {
    char* memory;
    template <class T>
    __forceinline__ T* at(int offset) const {
      return reinterpret_cast<T*>(memory + offset);
    }
    __forceinline__ auto* x() const { return at<Element[block_m * block_k]>(layout.x); }
    __forceinline__ auto* w() const { return at<Element[block_n * block_k]>(layout.w); }
    __forceinline__ auto* staging() const { return at<Result[16 * staging_pitch]>(layout.staging); }
    __forceinline__ TileType* tiles() const { return at<TileType>(layout.tiles); }
    __forceinline__ Weights weights() const { return Weights(at<float>(layout.weights)); }
    // Of X, then of W: of a stage, or of a slot of `tiles`.
    __forceinline__ float* scales(int set) const { return at<float>(layout.scales + set * Scales::bytes); }
    __forceinline__ auto& scheduler() const { return *at<Aligned<typename Tiles::State>>(layout.scheduler); }
  };

  // Copies stage after stage, tile after tile; runs ahead of the multiplication. A stage is begun, its copies are
  // issued one by one between the multiplications, and it is committed.
  struct Loader {
    const Args& args;
    Shared shared;
    X x;
    W w;
    Scales scales;
    int slot = 0;     // of the tile that is loading
    int k_first = 0;  // of the stage that is loading
    int k_end = 0;    // of the tile or piece, where they vary; whole tiles end at args.k, which takes no register
    int stage = 0;

    __forceinline__ Loader(const Args& a, const Shared& s) : args(a), shared(s), x(a), w(a) {}

    // Warp 0 puts the next tile into `slot`; the others may read it behind the next barrier.
    __forceinline__ void find_tile() {
      if (threadIdx.x >= 32) return;
      typename Tiles::State scheduler = shared.scheduler().value;
      TileType tile;
      if (!Tiles::next(scheduler, tile, Cut(nullptr))) tile.rows = 0;
      __syncwarp();
      if (threadIdx.x == 0) {
        shared.tiles()[slot] = tile;
        shared.scheduler().value = scheduler;
      }
    }

    __forceinline__ void begin() {
      if (steps_vary ? k_first >= k_end : k_first == 0) {
        const TileType tile = shared.tiles()[slot];
        if constexpr (steps_vary) {
          const Steps steps = steps_of(args, tile);
          k_first = steps.first * block_k, k_end = steps.end * block_k;
        }
        x.begin_tile(args, tile, k_first);
        w.begin_tile(args, tile, k_first);
        scales.begin_tile(args, tile);
        if constexpr (Scales::at_end) scales.copy(args, shared.scales(slot), k_first);
      }
      x.begin_stage(args, shared_address(shared.x()[stage]), k_first);
      w.begin_stage(args, shared_address(shared.w()[stage]), k_first);
      if constexpr (AfterStage::scaled)
        if (ends_part(k_first + block_k, steps_vary ? k_end : static_cast<int>(args.k)))
          scales.copy(args, shared.scales(stage), k_first);
      shared.weights().copy(args, shared.tiles()[slot], stage, k_first);
    }

    // Copies [from, to) of a stage: those of X, then those of W.
    template <int from, int to>
    __forceinline__ void copy_range() {
      if constexpr (from < to) {
        if constexpr (from < X::copies)
          x.template copy<from>();
        else
          w.template copy<from - X::copies>();
        copy_range<from + 1, to>();
      }
    }

    // Closes the stage, also where nothing was left to load, so that group counts stay the same. True where a new tile
    // was looked for. A barrier must follow before the next begin.
    __forceinline__ bool commit() {
      cp_async_commit();
      stage = stage + 1 == stages ? 0 : stage + 1;
      k_first += block_k;
      if (k_first < (steps_vary ? k_end : args.k)) return false;
      if constexpr (!steps_vary) k_first = 0;
      if (shared.tiles()[slot].rows == 0) return false;
      slot = (slot + 1) % kMmaTileSlots;
      find_tile();
      return true;
    }
  };

  // The copies of a stage are issued a few at a time, with each row of mma tiles of k_steps steps. The first of these
  // steps is the last of the stage before, behind the barrier that frees the memory.
  static constexpr int copies = X::copies + W::copies;
  static constexpr int slots = k_steps * (warp_m / 16);
  static constexpr int copies_before(int s) { return copies * s / slots; }

  struct Fragments {
    unsigned x[warp_m / 16][4];
    unsigned w[warp_n / 16][4];
  };

  // Where a warp reads fragments.
  struct FragmentReader {
    typename X::Reader x;
    typename W::Reader w;
    Weights weights;
    __forceinline__ FragmentReader(const Shared& shared, int m0, int n0)
        : x(shared_address(shared.x()[0]), m0), w(shared_address(shared.w()[0]), n0), weights(shared.weights()) {}
    __forceinline__ void load(Fragments& f, int stage, int k_step) const {
      x.load(f.x, stage, k_step);
      w.load(f.w, stage, k_step);
      weights.weigh(f.x, stage, k_step);
    }
  };

  using Accumulators = float[warp_m / 16][warp_n / 8][4];
  using Sums = typename Choice<AfterStage::restarts, MmaPromotedSums<Mma>, MmaKeptSums<Mma>>::type;

  // Whether a part of the sums along k ends at `k`, the end of a stage, where the tile or piece ends at `end`.
  static __forceinline__ bool ends_part(int k, int end) {
    return block_k == kScaleBlock || k % kScaleBlock == 0 || k >= end;
  }

  static __forceinline__ Steps steps_of(const Args& args, const TileType& tile) {
    return Cut::steps_of(tile, Tiles::depth_of(args, tile));
  }

  // Calls use(sum, at, row) for each sum of a warp's part of the tile, with its place in Y and its row in the tile.
  template <class Use>
  static __forceinline__ void for_sums(const Args& args, const TileType& tile, Accumulators& sum, int m0, int n0,
                                       const Use& use) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m0 + i * 16 + half * 8 + lane / 4;
        if (row >= tile.rows) continue;
        Result* y = static_cast<Result*>(args.y) + target_row<Config>(args, tile.row + row) * y_columns<Config>(args);
#pragma unroll
        for (int j = 0; j < warp_n / 8; ++j)
#pragma unroll
          for (int next = 0; next < 2; ++next) {
            const long long column = tile.column + n0 + j * 8 + lane % 4 * 2 + next;
            if (column < y_columns<Config>(args)) use(sum[i][j][half * 2 + next], y[column], row);
          }
      }
  }

  // Sets the sums to what is in Y; of a tile cut into pieces those of the first piece.
  static __forceinline__ void add_y(const Args& args, const TileType& tile, Accumulators& sum, int m0, int n0) {
    if (tile.piece > 0 && tile.piece % split != 0) return;
    for_sums(args, tile, sum, m0, n0, [](float& d, const Result& y, int) { d = to_float(y); });
  }

  // Multiplies a tile's sums by the scales of its rows and columns.
  static __forceinline__ void scale(const Shared& shared, int slot, Accumulators& sum, int m0, int n0) {
    const int lane = threadIdx.x % 32;
    const float* const x = shared.scales(slot) + m0 + lane / 4;
    const float* const w = shared.scales(slot) + block_m + n0 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < warp_n / 8; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(w + j * 8);
#pragma unroll
      for (int i = 0; i < warp_m / 16; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][j][c] *= x[i * 16 + c / 2 * 8] * (c % 2 ? two.y : two.x);
    }
  }

  // Adds the bias of its columns to a tile's sums.
  static __forceinline__ void add_bias(const Args& args, const TileType& tile, Accumulators& sum, int n0) {
#pragma unroll
    for (int j = 0; j < warp_n / 8; ++j)
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const long long column = tile.column + n0 + j * 8 + threadIdx.x % 4 * 2 + next;
        const float value = bias<Config>(args, tile.expert, column);
#pragma unroll
        for (int i = 0; i < warp_m / 16; ++i) sum[i][j][next] += value, sum[i][j][next + 2] += value;
      }
  }

  // Stores fp32 sums from registers.
  static __forceinline__ void store_sums(const Args& args, const TileType& tile, Accumulators& sum, int m0, int n0) {
    for_sums(args, tile, sum, m0, n0, [&](float& d, Result& y, int row) {
      y = round_to<Result>(Function::value(&d, row_weight<Config>(args, tile.row + row)));
    });
  }

  // Leaves a piece's sums in memory: [tiles that are cut][split][warp_m / 16][warp_n / 8][threads], four a thread. True
  // for the block that finishes last: `sum` is then the total of the tile, which it stores.
  static __forceinline__ bool add_pieces(const Args& args, int piece, Accumulators& sum) {
    constexpr int of_piece = warp_m / 16 * (warp_n / 8) * threads;
    float4* first = reinterpret_cast<float4*>(args.workspace) +
                    static_cast<long long>(piece / split) * (split * of_piece) + threadIdx.x;
    float4* mine = first + piece % split * of_piece;
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i)
#pragma unroll
      for (int j = 0; j < warp_n / 8; ++j)
        __stcg(mine + (i * (warp_n / 8) + j) * threads,
               make_float4(sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]));
    __syncthreads();
    if (!__syncthreads_or(threadIdx.x == 0 && Cut::is_last(args, piece / split))) return false;
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i)
#pragma unroll 1  // with more loads at once registers spill
      for (int p = 0; p < split; ++p)
#pragma unroll
        for (int j = 0; j < warp_n / 8; ++j) {
          const float4 d = __ldcg(first + p * of_piece + (i * (warp_n / 8) + j) * threads);
#pragma unroll
          for (int c = 0; c < 4; ++c)
            sum[i][j][c] = (p == 0 ? 0.0f : sum[i][j][c]) + (c == 0 ? d.x : c == 1 ? d.y : c == 2 ? d.z : d.w);
        }
    return true;
  }

  // One step along k, copies in between: position 0 is the last step of a stage, position 1 the first of the next.
  template <int position, int row = 0>
  static __forceinline__ void multiply(Accumulators& sum, const Fragments& f, Loader& loader) {
    if constexpr (row < warp_m / 16) {
#pragma unroll
      for (int j = 0; j < warp_n / 8; ++j) {
        // Back and forth along n: the next row begins with the last column's fragment.
        const int column = row % 2 ? warp_n / 8 - 1 - j : j;
        mma_m16n8<Element>(sum[row][column], f.x[row], f.w[column / 2][column % 2 * 2],
                           f.w[column / 2][column % 2 * 2 + 1]);
      }
      constexpr int slot = position * (warp_m / 16) + row;
      loader.template copy_range<copies_before(slot), copies_before(slot + 1)>();
      multiply<position, row + 1>(sum, f, loader);
    }
  }

  // A warp stores its part of the tile 16 rows at a time through its own staging rows, so that stores are 16 bytes wide
  // and no other warp has to wait.
  static __forceinline__ void store(const Args& args, const TileType tile, const Accumulators& sum, Result* staging,
                                    int m0, int n0) {
    const int lane = threadIdx.x % 32;
    constexpr int per_output = Function::columns_per_output;
    Result* y = static_cast<Result*>(args.y);
#pragma unroll
    for (int i = 0; i < warp_m / 16; ++i) {
      if (m0 + i * 16 >= tile.rows) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = lane / 4 + half * 8;
        const auto weights = both(row_weight<Config>(args, tile.row + min(m0 + i * 16 + r, tile.rows - 1)));
#pragma unroll
        for (int j = 0; j < warp_n / 8 / per_output; ++j) {
          float low[per_output], high[per_output];
          for (int of = 0; of < per_output; ++of)
            low[of] = sum[i][j * per_output + of][half * 2], high[of] = sum[i][j * per_output + of][half * 2 + 1];
          const unsigned pair = Function::pair(low, high, weights);
          if constexpr (problem.stores_h)
            if (m0 + i * 16 + r < tile.rows)
              store_pairs_in_h<Config>(args, tile.row + m0 + i * 16 + r, tile.column + n0 + j * 16 + lane % 4 * 2,
                                       pack<Result>(low[0], high[0]), pack<Result>(low[1], high[1]));
          *reinterpret_cast<unsigned*>(staging + r * staging_pitch + j * 8 + lane % 4 * 2) = pair;
        }
      }
      __syncwarp();
      constexpr int width = problem.store_bytes / 2;  // elements a store
      constexpr int pieces = warp_n / per_output / width;
#pragma unroll
      for (int at = lane; at < 16 * pieces; at += 32) {
        const int r = at / pieces, c = at % pieces * width;
        const int row = m0 + i * 16 + r;
        const long long column = y_column<Config>(tile) + n0 / per_output + c;
        if (row < tile.rows && column < y_columns<Config>(args)) {
          Result* target = y + target_row<Config>(args, tile.row + row) * y_columns<Config>(args) + column;
          const Result* source = staging + r * staging_pitch + c;
          if constexpr (problem.store_bytes == 16)
            *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
          else if constexpr (problem.store_bytes == 4)
            *reinterpret_cast<unsigned*>(target) = *reinterpret_cast<const unsigned*>(source);
          else
            *target = *source;
        }
      }
      __syncwarp();
    }
  }

  template <int step>
  static __forceinline__ void k_step(Loader& loader, Fragments (&f)[2], Sums& sums, const FragmentReader& reader,
                                     int& stage) {
    if constexpr (step == k_steps - 1) {
      sums.read_scales(stage);
      // Behind the barrier the next stage has landed, and this one may be overwritten: all its fragments are loaded.
      loader.commit();
      cp_async_wait<stages - 2>();
      __syncthreads();
      stage = stage + 1 == stages ? 0 : stage + 1;
      loader.begin();
    }
    reader.load(f[(step + 1) % 2], stage, (step + 1) % k_steps);
    multiply<(step + 1) % k_steps>(sums.products(), f[step % 2], loader);
    if constexpr (step + 1 < k_steps)
      k_step<step + 1>(loader, f, sums, reader, stage);
    else if constexpr (k_steps % 2 != 0)
      f[0] = f[1];
  }
  // A stage of a tile or piece that ends at `end`.
  static __forceinline__ void multiply_stage(Loader& loader, Fragments (&f)[2], Sums& sums,
                                             const FragmentReader& reader, int& stage, int k_first, int end) {
    k_step<0>(loader, f, sums, reader, stage);
    if constexpr (AfterStage::restarts)
      if (ends_part(k_first + block_k, end)) sums.promote();
  }

  static __forceinline__ void run(const Args& args) {
    extern __shared__ __align__(256) char memory[];
    const Shared shared = {memory};
    const int warp = threadIdx.x / 32;
    const int m0 = warp / grid.n * warp_m, n0 = warp % grid.n * warp_n;

    if (threadIdx.x < 32) {
      typename Tiles::State scheduler = Tiles::begin(args);
      Cut(nullptr).template plan<Tiles>(scheduler, Tiles::depth(args), false);
      if (threadIdx.x == 0) shared.scheduler().value = scheduler;
    }
    __syncwarp();
    Loader loader(args, shared);
    loader.find_tile();
    __syncthreads();
    for (int i = 0; i < stages - 1; ++i) {
      loader.begin();
      loader.template copy_range<0, copies>();
      if (loader.commit()) __syncthreads();
    }
    loader.begin();
    loader.template copy_range<0, copies_before(warp_m / 16)>();
    cp_async_wait<stages - 2>();
    __syncthreads();

    Fragments fragments[2];
    int stage = 0;
    const FragmentReader reader(shared, m0, n0);
    reader.load(fragments[0], stage, 0);
    for (int slot = 0; shared.tiles()[slot].rows > 0; slot = (slot + 1) % kMmaTileSlots) {
      Accumulators sum = {};
      if constexpr (problem.accumulates) add_y(args, shared.tiles()[slot], sum, m0, n0);
      Sums sums(sum, shared, slot, m0, n0);
      if constexpr (!steps_vary) {
        for (int k = 0; k < args.k; k += block_k)
          multiply_stage(loader, fragments, sums, reader, stage, k, static_cast<int>(args.k));
      } else {
        const Steps steps = steps_of(args, shared.tiles()[slot]);
        for (int k = steps.first; k < steps.end; ++k)
          multiply_stage(loader, fragments, sums, reader, stage, k * block_k, steps.end * block_k);
        if constexpr (split > 1)
          if (const int piece = shared.tiles()[slot].piece; piece >= 0 && !add_pieces(args, piece, sum)) continue;
      }
      if constexpr (Scales::at_end) scale(shared, slot, sum, m0, n0);
      if constexpr (problem.adds_bias) add_bias(args, shared.tiles()[slot], sum, n0);
      if constexpr (stores_sums)
        store_sums(args, shared.tiles()[slot], sum, m0, n0);
      else if constexpr (problem.quantises())
        MmaQuantise<Mma>::store(args, shared.tiles()[slot], sum,
                                *shared.template at<typename MmaQuantise<Mma>::Room>(layout.staging), m0, n0);
      else
        store(args, shared.tiles()[slot], sum, shared.staging()[warp], m0, n0);
    }
    cp_async_wait<0>();
  }
};

}  // namespace moetune
