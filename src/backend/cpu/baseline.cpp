// Expert after expert in blocks of columns, dealt to the threads, most rows first. How it goes about them is what any
// decent GEMM does, the variant too: few rows read W where it lies, many pack it. A control that is built otherwise
// follows other moods of the machine than what is compared with it.
#include "backend/cpu/baseline.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/dots.h"

namespace moetune {
namespace {

constexpr int64_t kPackDepth = 64;  // of W at a time
constexpr int64_t kStripColumns = 64;
static_assert(kStripColumns % Dots::kMaxTileColumns == 0);
constexpr int64_t kFewRows = 16;

/// All rows of an expert times some of its columns.
struct Strip {
  int64_t expert = 0;
  int64_t first = 0;  // row in expert order
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// Four by four.
void transpose(const float* from, int64_t from_pitch, float* to, int64_t to_pitch) {
  using Four = float __attribute__((vector_size(16)));
  Four row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * from_pitch, sizeof(Four));
  const Four a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
             b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
             d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Four column[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_pitch, &column[i], sizeof(Four));
}

struct Loop {
  const Args& args;
  const Shape& shape;
  const Dots& dots = moetune::dots();
  Dtype dtype = shape.layer.dtype;
  Dots::Few* few = moetune::few(dots, dtype);

  const std::byte* row_of(const void* matrix, int64_t row) const {
    return static_cast<const std::byte*>(matrix) + row * args.k * size_bytes(dtype);
  }

  // panel [k, tile_columns] from `columns` rows of W; what is missing is a copy of the last. Written row by row:
  // across, times differed by 10 % from process to process. Not the variant's packing: a control that shares what it
  // is compared with slows down beside it.
  void pack(int64_t expert, int64_t column, int64_t columns, float* panel) const {
    float piece[Dots::kMaxTileColumns][kPackDepth];
    for (int64_t from = 0; from < args.k; from += kPackDepth) {
      const int64_t depth = std::min<int64_t>(kPackDepth, args.k - from);
      for (int64_t c = 0; c < dots.tile_columns; ++c) {
        const std::byte* w = row_of(args.w, expert * args.n + column + std::min(c, columns - 1));
        widen(dots, dtype, w + from * size_bytes(dtype), depth, piece[c]);
      }
      float* to = panel + from * dots.tile_columns;
      int64_t k = 0;
      for (; k + 4 <= depth; k += 4)
        for (int64_t c = 0; c < dots.tile_columns; c += 4)
          transpose(piece[c] + k, kPackDepth, to + k * dots.tile_columns + c, dots.tile_columns);
      for (; k < depth; ++k)
        for (int64_t c = 0; c < dots.tile_columns; ++c) to[k * dots.tile_columns + c] = piece[c][k];
    }
  }

  void emit(int64_t row, int64_t column, int64_t columns, float* sums) const {
    if (shape.fusion.topk_weights) {
      const float weight = round_to(dtype, args.topk_weights[args.gather_indices[row]]);
      for (int64_t c = 0; c < columns; ++c) sums[c] = round_to(dtype, sums[c]) * weight;
    }
    const int64_t target = shape.fusion.permute_y ? args.gather_indices[row] : row;
    const int64_t at = target * args.n + column;
    if (dtype == Dtype::bf16) dots.narrow_bf16(sums, columns, static_cast<uint16_t*>(args.y) + at);
    if (dtype == Dtype::fp16) std::transform(sums, sums + columns, static_cast<uint16_t*>(args.y) + at, to_fp16);
    if (dtype == Dtype::fp32) std::copy(sums, sums + columns, static_cast<float*>(args.y) + at);
  }

  // Rows [first, first + rows) of expert order as floats, one behind the other.
  void unpack(int64_t first, int64_t rows, float* x) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t source = shape.fusion.permute_x ? args.gather_indices[first + r] / args.top_k : first + r;
      widen(dots, dtype, row_of(args.x, source), args.k, x + r * args.k);
    }
  }

  // Few rows: W is read where it lies, a few of its rows at a time.
  void multiply_few(const Strip& strip, float* x) const {
    unpack(strip.first, strip.rows, x);
    float sums[kFewRows][kStripColumns];
    const int64_t row_bytes = args.k * size_bytes(dtype);
    for (int64_t n = 0; n < strip.columns; n += dots.columns) {
      const std::byte* w_rows[Dots::kMaxColumns];
      for (int64_t c = 0; c < dots.columns; ++c)
        w_rows[c] = row_of(args.w, strip.expert * args.n + strip.column + std::min(n + c, strip.columns - 1));
      for (int64_t r = 0; r < strip.rows; r += Dots::kRows) {
        const float* x_rows[Dots::kRows];
        for (int64_t i = 0; i < Dots::kRows; ++i) x_rows[i] = x + std::min(r + i, strip.rows - 1) * args.k;
        float part[Dots::kRows * Dots::kMaxColumns];
        few(x_rows, w_rows, args.k, dots.columns * row_bytes, part);
        for (int64_t i = 0; i < std::min<int64_t>(Dots::kRows, strip.rows - r); ++i)
          for (int64_t c = 0; c < std::min<int64_t>(dots.columns, strip.columns - n); ++c)
            sums[r + i][n + c] = part[i * dots.columns + c];
      }
    }
    for (int64_t r = 0; r < strip.rows; ++r) emit(strip.first + r, strip.column, strip.columns, sums[r]);
  }

  // Many rows: panels of W are packed once and multiplied by a few rows of X after another.
  void multiply_many(const Strip& strip, float* memory) const {
    float *x = memory, *panels = memory + Dots::kTileRows * args.k;
    const int64_t width = dots.tile_columns;
    for (int64_t n = 0; n < strip.columns; n += width)
      pack(strip.expert, strip.column + n, std::min(width, strip.columns - n), panels + n * args.k);
    for (int64_t row = 0; row < strip.rows; row += Dots::kTileRows) {
      const int64_t rows = std::min<int64_t>(Dots::kTileRows, strip.rows - row);
      unpack(strip.first + row, rows, x);
      const float* x_rows[Dots::kTileRows];
      for (int64_t r = 0; r < Dots::kTileRows; ++r) x_rows[r] = x + std::min(r, rows - 1) * args.k;
      for (int64_t n = 0; n < strip.columns; n += width) {
        float sums[Dots::kTileRows * Dots::kMaxTileColumns];
        dots.tile(x_rows, panels + n * args.k, args.k, sums);
        for (int64_t r = 0; r < rows; ++r)
          emit(strip.first + row + r, strip.column + n, std::min(width, strip.columns - n), sums + r * width);
      }
    }
  }
};

}  // namespace

void loop_baseline(const Args& args, const Shape& shape, ThreadPool& pool, LoopWorkspace& workspace) {
  const Loop loop{.args = args, .shape = shape};
  const int64_t floats = std::max(kFewRows, Dots::kTileRows + kStripColumns) * args.k;
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  workspace.memory.resize(static_cast<size_t>(pool.size()));
  for (Buffer& memory : workspace.memory)
    if (memory.bytes() < bytes) memory = Buffer::in_one_place(bytes);
  workspace.first_row.assign(1, 0);
  workspace.order.clear();
  for (int e = 0; e < args.experts; ++e) {
    workspace.first_row.push_back(workspace.first_row.back() + args.m_sizes[e]);
    workspace.order.push_back(e);
  }
  std::stable_sort(workspace.order.begin(), workspace.order.end(),
                   [&](int a, int b) { return args.m_sizes[a] > args.m_sizes[b]; });
  const int64_t strips = (args.n + kStripColumns - 1) / kStripColumns;  // of an expert
  pool.for_each(args.experts * strips, [&](int thread, int64_t i) {
    const int64_t expert = workspace.order[static_cast<size_t>(i / strips)], column = i % strips * kStripColumns;
    const Strip strip = {.expert = expert,
                         .first = workspace.first_row[static_cast<size_t>(expert)],
                         .rows = args.m_sizes[expert],
                         .column = column,
                         .columns = std::min<int64_t>(kStripColumns, args.n - column)};
    auto* memory = workspace.memory[static_cast<size_t>(thread)].as<float>();
    if (strip.rows > kFewRows)
      loop.multiply_many(strip, memory);
    else if (strip.rows > 0)
      loop.multiply_few(strip, memory);
  });
}

}  // namespace moetune
