// Expert after expert in blocks of columns, dealt to the threads, most rows first. As in the variant, few rows read B
// where it lies, many pack it: a control that works otherwise would react otherwise to the machine's state.
#include "backend/cpu/baseline.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "workload/result.h"

namespace moetune {
namespace {

constexpr int64_t kPackDepth = 64;  // of B at a time
constexpr int64_t kStripColumns = 64;
static_assert(kStripColumns % Dots::kMaxTileColumns == 0);
constexpr int64_t kPieceColumns = std::max<int64_t>(Dots::kMaxTileColumns, kStripColumns);  // emitted at once, at most
constexpr int64_t kFewRows = 16;
// Rows of an A that is read across its rows: so many columns in memory, a few cache lines.
constexpr int64_t kRowsAcross = 48;
static_assert(kRowsAcross % Dots::kTileRows == 0);

/// All rows of an expert times some of its columns.
struct Strip {
  int64_t expert = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

int64_t strips_of(const Product& product) { return (product.n + kStripColumns - 1) / kStripColumns; }

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
  const Product& product;
  const Matrices& matrices;
  const LoopWorkspace& workspace;
  const Dots& dots = moetune::dots();
  Input a = input_a(product, matrices);
  Input b = input_b(product, matrices);
  Dots::Few* few = moetune::few(dots, product.b.type.dtype);

  // Whether B can be read where it lies: K is contiguous and nothing is scaled.
  bool is_direct() const { return is_k_major(b.operand) && !b.scales; }
  // Rows of A that are unpacked at once.
  int64_t group() const { return is_k_major(a.operand) ? int64_t{Dots::kTileRows} : kRowsAcross; }

  void unpack(const Input& input, int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const {
    input.unpack(expert, row, column, count, target);
    input.scale(expert, row, column, count, target);
  }

  // panel [k, tile_columns] from `columns` columns of the product; what is missing is a copy of the last. Written row
  // by row: times of writing columns differ from process to process. The loop has packing of its own: a control with
  // the variant's code would slow down with the variant.
  void pack(int64_t expert, int64_t k, int64_t column, int64_t columns, float* panel) const {
    float piece[Dots::kMaxTileColumns][kPackDepth];
    const auto row_of = [&](int64_t c) { return column + std::min(c, columns - 1); };
    const std::byte* rows[Dots::kMaxTileColumns];
    for (int64_t c = 0; c < dots.tile_columns; ++c) rows[c] = b.at(expert, row_of(c), 0);
    for (int64_t from = 0; from < k; from += kPackDepth) {
      const int64_t depth = std::min<int64_t>(kPackDepth, k - from);
      for (int64_t c = 0; c < dots.tile_columns; ++c) {
        widen(dots, b.operand.type.dtype, rows[c] + from * size_bytes(b.operand.type.dtype), depth, piece[c]);
        b.scale(expert, row_of(c), from, depth, piece[c]);
      }
      float* to = panel + from * dots.tile_columns;
      int64_t i = 0;
      for (; i + 4 <= depth; i += 4)
        for (int64_t c = 0; c < dots.tile_columns; c += 4)
          transpose(piece[c] + i, kPackDepth, to + i * dots.tile_columns + c, dots.tile_columns);
      for (; i < depth; ++i)
        for (int64_t c = 0; c < dots.tile_columns; ++c) to[i * dots.tile_columns + c] = piece[c][i];
    }
  }

  // The same from a B whose rows in memory are the panel's.
  void pack_across(int64_t expert, int64_t k, int64_t column, int64_t columns, float* panel) const {
    for (int64_t i = 0; i < k; ++i) {
      float* to = panel + i * dots.tile_columns;
      unpack(b, expert, i, column, columns, to);
      std::fill(to + columns, to + dots.tile_columns, to[columns - 1]);
    }
  }

  // Adds the dot product of some of a strip's columns to the strip's; columns come in order.
  void add_dot(int64_t expert, int64_t row, int64_t column, int64_t columns, const float* sums) const {
    const Input x = input_x(product, matrices);
    float values[kPieceColumns], sum = 0;
    unpack(x, expert, row, column, columns, values);
    for (int64_t c = 0; c < columns; ++c) sum += sums[c] * values[c];
    float& total =
        workspace.dots
            .as<float>()[(first_row(product, x.operand, expert) + row) * strips_of(product) + column / kStripColumns];
    total = column % kStripColumns == 0 ? sum : total + sum;
  }

  void emit(int64_t expert, int64_t row, int64_t column, int64_t columns, float* sums) const {
    const Dtype dtype = product.d.type.dtype;
    if (product.weight_gradient) add_dot(expert, row, column, columns, sums);
    if (sums_slots(product)) {
      const int64_t in_order = first_row(product, product.d, expert) + row;
      std::copy_n(sums, columns, workspace.sums.as<float>() + in_order * product.n + column);
      return;
    }
    const bool rounded = product.weighting == Weighting::rounded_result;
    if (weights_result(product)) {
      const float weight = weight_of_row(product, matrices.topk_weights, expert, row);
      const float factor = rounded ? round_to(dtype, weight) : weight;
      for (int64_t c = 0; c < columns; ++c) sums[c] = (rounded ? round_to(dtype, sums[c]) : sums[c]) * factor;
    }
    if (product.accumulates) {
      float before[kPieceColumns];
      unpack_d(product, matrices, expert, row, column, columns, before);
      for (int64_t c = 0; c < columns; ++c) sums[c] += before[c];
    }
    narrow(sums, columns, memory_row(product, product.d, expert, row) * product.d.columns + column);
  }

  // Rounds `columns` values to elements of D from `at` on.
  void narrow(const float* sums, int64_t columns, int64_t at) const {
    const Dtype dtype = product.d.type.dtype;
    if (dtype == Dtype::bf16) dots.narrow_bf16(sums, columns, static_cast<uint16_t*>(matrices.d) + at);
    if (dtype == Dtype::fp16) std::transform(sums, sums + columns, static_cast<uint16_t*>(matrices.d) + at, to_fp16);
    if (dtype == Dtype::fp32) std::copy(sums, sums + columns, static_cast<float*>(matrices.d) + at);
  }

  // Rows [first, first + rows) of an expert's product as floats [rows, k]. `line` holds a row of memory.
  void unpack_rows(int64_t expert, int64_t first, int64_t rows, int64_t k, float* line, float* target) const {
    if (is_k_major(a.operand)) {
      for (int64_t r = 0; r < rows; ++r) unpack(a, expert, first + r, 0, k, target + r * k);
      return;
    }
    for (int64_t i = 0; i < k; ++i) {
      unpack(a, expert, i, first, rows, line);
      for (int64_t r = 0; r < rows; ++r) target[r * k + i] = line[r];
    }
  }

  // Few rows: B is read where it lies, a few of its rows at a time.
  void multiply_few(const Strip& strip, float* memory) const {
    const int64_t k = extent(product, strip.expert, Axis::k);
    float* x = memory + kRowsAcross;
    unpack_rows(strip.expert, 0, strip.rows, k, memory, x);
    float sums[kFewRows][kStripColumns];
    const int64_t row_bytes = k * size_bytes(b.operand.type.dtype);
    for (int64_t n = 0; n < strip.columns; n += dots.columns) {
      const std::byte* b_rows[Dots::kMaxColumns];
      for (int64_t c = 0; c < dots.columns; ++c)
        b_rows[c] = b.at(strip.expert, strip.column + std::min(n + c, strip.columns - 1), 0);
      for (int64_t r = 0; r < strip.rows; r += Dots::kRows) {
        const float* x_rows[Dots::kRows];
        for (int64_t i = 0; i < Dots::kRows; ++i) x_rows[i] = x + std::min(r + i, strip.rows - 1) * k;
        float part[Dots::kRows * Dots::kMaxColumns];
        few(x_rows, b_rows, k, dots.columns * row_bytes, part);
        for (int64_t i = 0; i < std::min<int64_t>(Dots::kRows, strip.rows - r); ++i)
          for (int64_t c = 0; c < std::min<int64_t>(dots.columns, strip.columns - n); ++c)
            sums[r + i][n + c] = part[i * dots.columns + c];
      }
    }
    for (int64_t r = 0; r < strip.rows; ++r) emit(strip.expert, r, strip.column, strip.columns, sums[r]);
  }

  // Many rows: panels of B are packed once and multiplied by a few rows of A after another.
  void multiply_many(const Strip& strip, float* memory) const {
    const int64_t k = extent(product, strip.expert, Axis::k), width = dots.tile_columns;
    float *x = memory + kRowsAcross, *panels = x + group() * k;
    for (int64_t n = 0; n < strip.columns; n += width) {
      const int64_t column = strip.column + n, columns = std::min(width, strip.columns - n);
      if (is_k_major(b.operand))
        pack(strip.expert, k, column, columns, panels + n * k);
      else
        pack_across(strip.expert, k, column, columns, panels + n * k);
    }
    for (int64_t first = 0; first < strip.rows; first += group()) {
      const int64_t unpacked = std::min(group(), strip.rows - first);
      unpack_rows(strip.expert, first, unpacked, k, memory, x);
      for (int64_t row = 0; row < unpacked; row += Dots::kTileRows)
        multiply_tiles(strip, first + row, std::min<int64_t>(Dots::kTileRows, unpacked - row), k, x + row * k, panels);
    }
  }

  // A few rows, unpacked at `x`, times all panels.
  void multiply_tiles(const Strip& strip, int64_t row, int64_t rows, int64_t k, const float* x,
                      const float* panels) const {
    const int64_t width = dots.tile_columns;
    const float* x_rows[Dots::kTileRows];
    for (int64_t r = 0; r < Dots::kTileRows; ++r) x_rows[r] = x + std::min(r, rows - 1) * k;
    for (int64_t n = 0; n < strip.columns; n += width) {
      float sums[Dots::kTileRows * Dots::kMaxTileColumns];
      dots.tile(x_rows, panels + n * k, k, sums);
      for (int64_t r = 0; r < rows; ++r)
        emit(strip.expert, row + r, strip.column + n, std::min(width, strip.columns - n), sums + r * width);
    }
  }
};

void grow(Buffer& buffer, int64_t floats) {
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  if (buffer.bytes() < bytes) buffer = Buffer(bytes);
}

void grow(LoopWorkspace& workspace, const Product& product, const Loop& loop, int threads) {
  if (sums_slots(product)) grow(workspace.sums, routed_rows(product) * product.n);
  if (product.weight_gradient) grow(workspace.dots, routed_rows(product) * strips_of(product));
  int64_t k = 0;
  for (int64_t expert = 0; expert < experts(product); ++expert) k = std::max(k, extent(product, expert, Axis::k));
  const int64_t floats = kRowsAcross + std::max(kFewRows, loop.group() + kStripColumns) * k;
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  workspace.memory.resize(static_cast<size_t>(threads));
  for (Buffer& memory : workspace.memory)
    if (memory.bytes() < bytes) memory = Buffer::in_one_place(bytes);
}

// D from the sums of its tokens' slots, one slot after another.
void add_slots(const Loop& loop, const std::vector<int32_t>& rows, ThreadPool& pool) {
  const Product& p = loop.product;
  pool.for_each(p.d.rows, [&](int, int64_t token) {
    for (int64_t column = 0; column < p.n; column += kPieceColumns) {
      const int64_t columns = std::min(kPieceColumns, p.n - column);
      float total[kPieceColumns] = {};
      for (int64_t slot = token * p.top_k; slot < (token + 1) * p.top_k; ++slot) {
        if (rows[static_cast<size_t>(slot)] < 0) continue;
        const float* sums = loop.workspace.sums.as<float>() + rows[static_cast<size_t>(slot)] * p.n + column;
        for (int64_t c = 0; c < columns; ++c) total[c] += sums[c];
      }
      loop.narrow(total, columns, token * p.n + column);
    }
  });
}

// dweights from the dot products of its strips, one after another.
void add_dots(const Loop& loop, const std::vector<int32_t>& rows) {
  const int64_t strips = strips_of(loop.product);
  for (size_t slot = 0; slot < rows.size(); ++slot) {
    loop.matrices.dweights[slot] = 0;
    if (rows[slot] < 0) continue;
    const float* dots = loop.workspace.dots.as<float>() + rows[slot] * strips;
    loop.matrices.dweights[slot] = std::accumulate(dots, dots + strips, 0.0F);
  }
}

}  // namespace

void loop_baseline(const Product& product, const Matrices& matrices, ThreadPool& pool, LoopWorkspace& workspace) {
  const Loop loop{.product = product, .matrices = matrices, .workspace = workspace};
  grow(workspace, product, loop, pool.size());
  workspace.order.resize(product.m_sizes.size());
  std::iota(workspace.order.begin(), workspace.order.end(), 0);
  std::stable_sort(workspace.order.begin(), workspace.order.end(),
                   [&](int left, int right) { return product.m_sizes[left] > product.m_sizes[right]; });
  const int64_t strips = strips_of(product);  // of an expert
  pool.for_each(experts(product) * strips, [&](int thread, int64_t i) {
    const int64_t expert = workspace.order[static_cast<size_t>(i / strips)], column = i % strips * kStripColumns;
    const Strip strip = {.expert = expert,
                         .rows = extent(product, expert, Axis::m),
                         .column = column,
                         .columns = std::min<int64_t>(kStripColumns, product.n - column)};
    auto* memory = workspace.memory[static_cast<size_t>(thread)].as<float>();
    if (strip.rows == 0 || (product.accumulates && extent(product, expert, Axis::k) == 0)) return;
    if (strip.rows <= kFewRows && loop.is_direct())
      loop.multiply_few(strip, memory);
    else
      loop.multiply_many(strip, memory);
  });
  if (sums_slots(product)) add_slots(loop, rows_of_slots(product), pool);
  if (product.weight_gradient) add_dots(loop, rows_of_slots(product));
}

}  // namespace moetune
