// Operands of the mma variant: from memory by cp.async into a stage, and from there into fragments. One policy where k
// is contiguous in memory, one where each row of memory is a step along k.
#pragma once
#include "epilogue.cuh"
#include "mma/mma_plan.h"
#include "tile.cuh"

namespace moetune {

// What both policies use. X or W of a tile: `block` rows of the product, block_k of its depth.
template <class Config, bool is_x>
struct MmaOperand {
  static constexpr MmaKnobs knobs = Config::knobs;
  using Type = typename Choice<is_x, typename Config::X, typename Config::W>::type;
  static constexpr int element_bytes = sizeof(typename Type::Stage), chunk_elements = 16 / element_bytes;
  static_assert(sizeof(typename Type::Memory) == element_bytes && element_bytes <= 2,
                "mma copies elements of 8 or 16 bits");
  static constexpr int block = is_x ? knobs.block_m : knobs.block_n, block_k = knobs.block_k;
  static constexpr int threads = 32 * knobs.warps, stage_bytes = block * block_k * element_bytes;
  static constexpr RowOrder order = is_x ? Config::problem.x_rows : Config::problem.w_rows;
  static constexpr bool is_gathered = order != RowOrder::in_place;
  // Rows of W that make combined columns are counted one by one too.
  static constexpr bool is_combined = !is_x && Config::Function::columns_per_output > 1,
                        by_number = is_gathered || is_combined;
  static constexpr int load_bytes = is_x ? Config::problem.x_load_bytes : Config::problem.w_load_bytes;

  static __forceinline__ const char* base(const Args& args) { return static_cast<const char*>(is_x ? args.x : args.w); }

  // Where a lane's row of ldmatrix lies in a fragment of 16 rows x 32 bytes. X: rows 0-7, rows 8-15, then the same 16
  // bytes further along k. W: rows 0-7 at both places along k, then rows 8-15.
  static __forceinline__ int upper_half() {
    const int lane = threadIdx.x % 32;
    return is_x ? lane / 8 % 2 : lane / 16;
  }
  static __forceinline__ int later_half() {
    const int lane = threadIdx.x % 32;
    return is_x ? lane / 16 : lane / 8 % 2;
  }
};

// k is contiguous in memory and in a stage. A thread copies one 16-byte chunk of every row_step-th row.
template <class Config, bool is_x>
struct MmaRowsAlongK : MmaOperand<Config, is_x> {
  using Base = MmaOperand<Config, is_x>;
  using Base::block, Base::block_k, Base::by_number, Base::element_bytes, Base::chunk_elements;
  using Layout = Swizzle<block_k * element_bytes / 2>;  // it counts 16-bit columns
  static constexpr int chunks = Layout::chunks;
  static constexpr int row_step = Base::threads / chunks;  // rows that all threads copy at once, a chunk each
  static constexpr int copies = (block + row_step - 1) / row_step;
  static_assert(row_step % 8 == 0, "all rows that a thread copies have one swizzle");

  const long long row_bytes, step_bytes = row_bytes * row_step;
  const char* from;  // this thread's chunk in the row that it copies next
  unsigned to;       // where its first row's chunk goes
  int valid;         // bytes of its chunk before the end of k
  int rows_left,
      rows_now;  // from its first row to the end of the expert or of n; the same, or none behind the end of k
  int number_of[by_number ? copies : 1];  // rows in memory, or in the expert's W

  __forceinline__ explicit MmaRowsAlongK(const Args& args) : row_bytes(args.k * element_bytes) {}

  static __forceinline__ int row() { return threadIdx.x / chunks; }
  static __forceinline__ int chunk() { return threadIdx.x % chunks; }

  template <class TileType>
  __forceinline__ void begin_tile(const Args& args, const TileType& tile, int k_first) {
    rows_left = is_x ? tile.rows - row() : tile.rows == 0 ? 0 : static_cast<int>(args.n) - tile.column - row();
    from = Base::base(args) + chunk() * 16 + k_first * element_bytes;
    if constexpr (by_number) {
      if constexpr (Base::is_combined) from += tile.expert * args.n * row_bytes;
#pragma unroll
      for (int i = 0; i < copies; ++i) {
        const int at = row() + i * row_step;
        number_of[i] = i * row_step >= rows_left ? 0
                       : Base::is_combined       ? static_cast<int>(w_row<Config>(args, tile.column + at))
                                                 : static_cast<int>(memory_row<Base::order>(args, tile.row + at));
      }
    } else {
      from += ((is_x ? tile.row : tile.expert * args.n + tile.column) + row()) * row_bytes;
    }
  }
  __forceinline__ void begin_stage(const Args& args, unsigned stage, int k_first) {
    to = stage + Layout::offset(row(), chunk());
    // Past the end of k zeros are written for both operands: a NaN times zero would still be NaN.
    valid = (static_cast<int>(args.k) - k_first - chunk() * chunk_elements) * element_bytes;
    rows_now = valid > 0 ? rows_left : 0;
  }
  // Rows past the end become zeros. Copies come in order: each moves the pointer down to the next row, and the last
  // moves it to the first row of the next stage.
  template <int number>
  __forceinline__ void copy() {
    const bool inside = number * row_step < rows_now;
    const int bytes = inside ? (Base::load_bytes == 16 ? 16 : valid) : 0;
    if ((number + 1) * row_step <= block || number * row_step + row() < block) {
      const unsigned target = to + number * row_step * block_k * element_bytes;
      if constexpr (by_number)
        copy_chunk<Base::load_bytes>(target, from + number_of[number] * row_bytes, bytes);
      else
        copy_chunk<Base::load_bytes>(target, from, bytes);
    }
    if constexpr (number == copies - 1)
      from += block_k * element_bytes - (by_number ? 0 : (copies - 1) * step_bytes);
    else if constexpr (!by_number)
      from += step_bytes;
  }

  // Fragments of a warp's rows from `first` on. A step along k flips bits inside a row (see Swizzle).
  struct Reader {
    unsigned address;
    __forceinline__ Reader(unsigned first_stage, int first)
        : address(first_stage + Layout::offset(first + Base::upper_half() * 8 + threadIdx.x % 8, Base::later_half())) {}
    template <int count>
    __forceinline__ void load(unsigned (&fragments)[count][4], int stage, int k_step) const {
      const unsigned at = (address + stage * Base::stage_bytes) ^ (k_step * 32);
#pragma unroll
      for (int i = 0; i < count; ++i) ldmatrix_x4(fragments[i], at + i * 16 * block_k * element_bytes);
    }
  };
};

// Each row of memory, and of a stage's planes of up to 64 columns, is a step along k; columns are the rows of the
// product. ldmatrix transposes.
template <class Config, bool is_x>
struct MmaRowsAcrossK : MmaOperand<Config, is_x> {
  using Base = MmaOperand<Config, is_x>;
  using Base::block, Base::block_k, Base::is_gathered;
  static_assert(Base::element_bytes == 2, "ldmatrix transposes elements of 16 bits alone");
  static constexpr int width = block % 64 == 0 ? 64 : block % 32 == 0 ? 32 : 16;  // of a plane
  using Layout = Swizzle<width>;
  static constexpr int chunks = Layout::chunks;
  static constexpr int rows = block / width * block_k;  // of all planes
  static constexpr int row_step = Base::threads / chunks;
  static constexpr int copies = (rows + row_step - 1) / row_step;
  static constexpr bool sums_rows = Config::problem.x_mn_major;

  const char* from;         // this thread's column in the plane that it copies first, of the first row along k
  unsigned to;              // the stage
  int columns_left;         // from there
  int first_row, k, depth;  // of expert order; of the stage; end of k
  const Args& args;

  __forceinline__ explicit MmaRowsAcrossK(const Args& a) : args(a) {}

  static __forceinline__ int chunk() { return threadIdx.x % chunks; }
  __forceinline__ long long row_bytes() const { return (is_x ? args.m : args.n) * 2; }

  template <class TileType>
  __forceinline__ void begin_tile(const Args&, const TileType& tile, int) {
    const int column = (is_x ? tile.row - tile.expert * static_cast<int>(args.m) : tile.column) + chunk() * 8;
    columns_left = tile.rows == 0 ? 0 : static_cast<int>(is_x ? args.m : args.n) - column;
    from = Base::base(args) + column * 2;
    if constexpr (sums_rows)
      first_row = tile.first_row, depth = tile.depth;
    else
      from += tile.expert * args.k * row_bytes(), first_row = 0, depth = static_cast<int>(args.k);
  }
  __forceinline__ void begin_stage(const Args&, unsigned stage, int k_first) { to = stage, k = k_first; }
  // What lies past the end of k or of the columns becomes zeros.
  template <int number>
  __forceinline__ void copy() {
    const int row = number * row_step + static_cast<int>(threadIdx.x) / chunks;
    if (rows % row_step != 0 && row >= rows) return;
    const int plane = row / block_k, step = row % block_k, left = columns_left - plane * width;
    const bool inside = k + step < depth && left > 0;
    const int in_order = first_row + k + step;
    const long long memory = is_gathered && inside ? memory_row<Base::order>(args, in_order) : in_order;
    copy_chunk<Base::load_bytes>(to + plane * (block_k * width * 2) + Layout::offset(step, chunk()),
                                 from + memory * row_bytes() + plane * (width * 2),
                                 !inside                  ? 0
                                 : Base::load_bytes == 16 ? 16
                                                          : left * 2);
  }

  struct Reader {
    unsigned row;   // of the first plane
    int key, next;  // of its swizzle; the lane's first chunk, counted through all planes
    __forceinline__ Reader(unsigned first_stage, int first) {
      const int step = Base::later_half() * 8 + threadIdx.x % 8;
      row = first_stage + step * (width * 2);
      key = Layout::key(step);
      next = first / 8 + Base::upper_half();
    }
    template <int count>
    __forceinline__ void load(unsigned (&fragments)[count][4], int stage, int k_step) const {
      const unsigned at = row + stage * Base::stage_bytes + k_step * 16 * (width * 2);
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int chunk = next + i * 2;
        ldmatrix_x4_transposed(fragments[i], at + chunk / chunks * (block_k * width * 2) + (chunk % chunks ^ key) * 16);
      }
    }
  };
};

template <class Config, bool is_x>
using MmaOperandOf = typename Choice<is_x ? Config::problem.x_mn_major : Config::problem.w_mn_major,
                                     MmaRowsAcrossK<Config, is_x>, MmaRowsAlongK<Config, is_x>>::type;

// Weights of the rows of X that a tile sums over: copied beside each stage, and multiplied into its fragments.
template <class Config>
struct NoMmaWeights {
  __forceinline__ explicit NoMmaWeights(float*) {}
  __forceinline__ void copy(const auto&...) const {}
  __forceinline__ void weigh(const auto&...) const {}
};
template <class Config>
struct MmaWeights {
  using Element = typename Config::X::Stage;
  static constexpr int block_k = Config::knobs.block_k;
  float* weights;  // [stages][block_k]

  __forceinline__ explicit MmaWeights(float* memory) : weights(memory) {}

  template <class TileType>
  __forceinline__ void copy(const Args& args, const TileType& tile, int stage, int k_first) const {
    const int step = static_cast<int>(threadIdx.x);
    if (step >= block_k) return;
    const bool inside = tile.rows > 0 && k_first + step < tile.depth;
    const int slot = inside ? args.gather_indices[tile.first_row + k_first + step] : 0;
    cp_async<4>(shared_address(weights + stage * block_k + step), args.topk_weights + slot, inside);
  }
  static __forceinline__ unsigned times(unsigned pair, const float2& weight) {
    const Element low = {static_cast<unsigned short>(pair)}, high = {static_cast<unsigned short>(pair >> 16)};
    return pack<Element>(to_float(low) * weight.x, to_float(high) * weight.y);
  }
  template <int count>
  __forceinline__ void weigh(unsigned (&fragments)[count][4], int stage, int k_step) const {
    const float* from = weights + stage * block_k + k_step * 16 + threadIdx.x % 4 * 2;
    const float2 now = *reinterpret_cast<const float2*>(from), later = *reinterpret_cast<const float2*>(from + 8);
#pragma unroll
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int part = 0; part < 4; ++part) fragments[i][part] = times(fragments[i][part], part < 2 ? now : later);
  }
};

}  // namespace moetune
