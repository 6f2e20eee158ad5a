// Expert after expert in panels of columns, dealt to the threads; each packs its panel of W and takes a few rows of X
// after another.
#include "backend/cpu/baseline.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/dots.h"

namespace moetune {
namespace {

constexpr int64_t kPackDepth = 64;  // of W at a time

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

  // Rows [first, first + rows), in expert order, of the panel's columns.
  void multiply(int64_t first, int64_t rows, int64_t column, int64_t columns, const float* panel, float* x) const {
    const float* x_rows[Dots::kTileRows];
    float sums[Dots::kTileRows * Dots::kMaxTileColumns];
    for (int64_t r = 0; r < Dots::kTileRows; ++r) {
      x_rows[r] = x + std::min(r, rows - 1) * args.k;
      if (r >= rows) continue;
      const int64_t source = shape.fusion.permute_x ? args.gather_indices[first + r] / args.top_k : first + r;
      widen(dots, dtype, row_of(args.x, source), args.k, x + r * args.k);
    }
    dots.tile(x_rows, panel, args.k, sums);
    for (int64_t r = 0; r < rows; ++r) emit(first + r, column, columns, sums + r * dots.tile_columns);
  }
};

}  // namespace

void loop_baseline(const Args& args, const Shape& shape, ThreadPool& pool, LoopWorkspace& workspace) {
  const Loop loop{.args = args, .shape = shape};
  const int64_t width = loop.dots.tile_columns, panels = (args.n + width - 1) / width;
  const int64_t bytes = (width + Dots::kTileRows) * args.k * static_cast<int64_t>(sizeof(float));
  workspace.memory.resize(static_cast<size_t>(pool.size()));
  for (Buffer& memory : workspace.memory)
    if (memory.bytes() < bytes) memory = Buffer::in_one_place(bytes);
  workspace.first_row.assign(1, 0);
  for (int e = 0; e < args.experts; ++e) workspace.first_row.push_back(workspace.first_row.back() + args.m_sizes[e]);
  pool.for_each(args.experts * panels, [&](int thread, int64_t i) {
    const int64_t expert = i / panels, column = i % panels * width;
    const int64_t columns = std::min<int64_t>(width, args.n - column), rows = args.m_sizes[expert];
    if (rows == 0) return;
    auto* panel = workspace.memory[static_cast<size_t>(thread)].as<float>();
    loop.pack(expert, column, columns, panel);
    for (int64_t row = 0; row < rows; row += Dots::kTileRows)
      loop.multiply(workspace.first_row[static_cast<size_t>(expert)] + row,
                    std::min<int64_t>(Dots::kTileRows, rows - row), column, columns, panel, panel + width * args.k);
  });
}

}  // namespace moetune
