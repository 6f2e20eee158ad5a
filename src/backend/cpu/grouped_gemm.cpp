// Tasks, packing and storing of one launch. What is multiplied innermost is in microkernel.inc.
#include "backend/cpu/grouped_gemm.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "variant/cpu/cpu.h"

namespace moetune {
namespace {

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// One block of D to compute: `rows` rows from `row` and `columns` columns of one expert, sums over `depth`.
struct Task {
  int64_t expert = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  bool direct = false;   // few rows: B is used once
  bool keeps_b = false;  // another block of rows follows: packed B stays
};

/// A thread's share of the scratch memory, and the B that lies packed there.
struct Seat {
  float* b = nullptr;
  float* a = nullptr;
  float* sums = nullptr;
  int64_t packed_expert = -1;
  int64_t packed_column = -1;
};

/// What tasks store: D, or in expert order the fp32 sums that it is added up from.
Operand stored(const Product& product) {
  Operand d = product.d;
  if (sums_slots(product))
    d.type = plain_type(Dtype::fp32), d.order = RowOrder::in_place, d.rows = routed_rows(product);
  return d;
}

struct Launch {
  const Product& product;
  const Matrices& matrices;
  const CpuKnobs& knobs;
  const Microkernel& kernel;
  const Workspace& workspace;
  Input a = input_a(product, matrices);
  Input b = input_b(product, matrices);
  Operand d = stored(product);
  std::byte* d_data = sums_slots(product) ? workspace.partials.sums.data() : static_cast<std::byte*>(matrices.d);

  int64_t column_blocks() const { return blocks(product.n, knobs.block_n); }
  std::byte* d_at(int64_t expert, int64_t row, int64_t column) const {
    const int64_t index = memory_row(product, d, expert, row) * d.columns + column;
    return d_data + index * size_bytes(d.type.dtype);
  }
};

bool is_direct(const Product& product, int64_t rows) { return rows <= kCpuDirectRows && is_k_major(product.a); }

/// Blocks of rows of an expert. The direct path takes all its rows at once, since it reads B once for them.
int64_t row_blocks(const Product& product, int64_t rows, int block_m) {
  return is_direct(product, rows) ? (rows > 0) : blocks(rows, block_m);
}

/// Running sums of tasks with the experts of most rows first: what comes last is small then, so that the threads end
/// together whoever took what.
void lay_out(const Product& product, const CpuKnobs& c, Workspace& workspace) {
  const auto rows = [&](int expert) { return extent(product, expert, Axis::m); };
  workspace.order.clear();
  for (int expert = 0; expert < experts(product); ++expert)
    if (rows(expert) > 0 && (!product.accumulates || extent(product, expert, Axis::k) > 0))
      workspace.order.push_back(expert);
  std::sort(workspace.order.begin(), workspace.order.end(), [&](int a, int b) {
    return product.m_sizes[a] != product.m_sizes[b] ? product.m_sizes[a] > product.m_sizes[b] : a < b;
  });
  workspace.first_task.assign(1, 0);
  for (const int expert : workspace.order)
    workspace.first_task.push_back(workspace.first_task.back() +
                                   row_blocks(product, rows(expert), c.block_m) * blocks(product.n, c.block_n));
}

Task task_at(const Launch& launch, int64_t index) {
  const auto& first_task = launch.workspace.first_task;
  const CpuKnobs& c = launch.knobs;
  const Product& product = launch.product;
  const int64_t place = std::upper_bound(first_task.begin(), first_task.end(), index) - first_task.begin() - 1;
  const int64_t expert = launch.workspace.order[place];
  const int64_t rows = extent(product, expert, Axis::m), depth = extent(product, expert, Axis::k);
  const bool direct = is_direct(product, rows);
  const int64_t m_blocks = row_blocks(product, rows, c.block_m);
  const int64_t inside = index - first_task[place];
  const int64_t step = direct ? rows : c.block_m;
  const int64_t row = inside % m_blocks * step;
  const int64_t column = inside / m_blocks * c.block_n;
  return {.expert = expert,
          .row = row,
          .rows = std::min(step, rows - row),
          .column = column,
          .columns = std::min<int64_t>(c.block_n, product.n - column),
          .depth = depth,
          .direct = direct,
          .keeps_b = m_blocks > 1 && cpu_keeps_b(c, depth)};
}

/// read(i, elements [column, column + width) of row first + i of the expert's matrix) for `count` rows. Rows are short
/// and may lie anywhere: those before row `end` are prefetched.
template <class Read>
void for_lines(const Input& input, int64_t expert, int64_t first, int64_t count, int64_t end, int64_t column,
               int64_t width, Read&& read) {
  constexpr int64_t kAhead = 8, kLine = 64;
  const int64_t bytes = width * size_bytes(input.operand.type.dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (first + i + kAhead < end) {
      const std::byte* ahead = input.at(expert, first + i + kAhead, column);
      for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(ahead + byte);
    }
    read(i, input.at(expert, first + i, column));
  }
}

/// The task's rows of A over [from, from + depth) of K, as floats in seat.a: row after row where K is contiguous in
/// memory, else in panels [ceil(rows / panel_rows)][depth][panel_rows].
void unpack_a(const Launch& launch, const Task& task, int64_t from, int64_t depth, const Seat& seat) {
  const Input& a = launch.a;
  const Dtype dtype = a.operand.type.dtype;
  if (is_k_major(a.operand))
    return for_lines(a, task.expert, task.row, task.rows, task.row + task.rows, from, depth,
                     [&](int64_t r, const std::byte* line) {
                       launch.kernel.unpack(dtype, line, depth, seat.a + r * (depth + kCpuRowPadding));
                     });
  const int width = launch.kernel.panel_rows;
  for_lines(a, task.expert, from, depth, task.depth, task.row, task.rows, [&](int64_t i, const std::byte* line) {
    const float weight = a.weights ? weight_of_row(launch.product, a.weights, task.expert, from + i) : 1;
    launch.kernel.spread(dtype, line, task.rows, a.weights ? &weight : nullptr, width, depth * width,
                         seat.a + i * width);
  });
}

/// What unpack_a put there, from a row on.
LeftFactor left_at(const Launch& launch, const Seat& seat, int64_t row, int64_t depth) {
  if (is_k_major(launch.a.operand))
    return {.data = seat.a + row * (depth + kCpuRowPadding), .row_stride = depth + kCpuRowPadding, .depth_stride = 1};
  const int width = launch.kernel.panel_rows;
  return {.data = seat.a + row / width * width * depth + row % width, .row_stride = 1, .depth_stride = width};
}

/// Panels of B over one block of k, one after another: [ceil(columns / tile)][depth][tile].
void pack_b(const Launch& launch, const Task& task, int64_t from, int64_t depth, float* panels) {
  const Input& b = launch.b;
  const Dtype dtype = b.operand.type.dtype;
  const int tile = launch.kernel.tile_columns;
  if (!is_k_major(b.operand))
    return for_lines(b, task.expert, from, depth, task.depth, task.column, task.columns,
                     [&](int64_t i, const std::byte* line) {
                       launch.kernel.spread(dtype, line, task.columns, nullptr, tile, depth * tile, panels + i * tile);
                     });
  for (int64_t column = 0; column < task.columns; column += tile)
    launch.kernel.pack(dtype, b.at(task.expert, task.column + column, from), b.operand.columns,
                       std::min<int64_t>(tile, task.columns - column), depth, panels + column * depth);
}

/// Unpacked A over `depth` times panels of B.
void multiply(const Launch& launch, const Task& task, const Seat& seat, int64_t depth, const float* panels, bool add) {
  const int tile_rows = launch.kernel.tile_rows, tile_columns = launch.kernel.tile_columns;
  const int64_t stride = launch.knobs.block_n;
  for (int64_t column = 0; column < task.columns; column += tile_columns)
    for (int64_t row = 0; row < task.rows; row += tile_rows)
      launch.kernel.tile(static_cast<int>(std::min<int64_t>(tile_rows, task.rows - row)), depth,
                         left_at(launch, seat, row, depth), panels + column * depth, seat.sums + row * stride + column,
                         stride, add);
}

/// Few rows and a B whose K is contiguous: it is read where it lies.
void direct_sums(const Launch& launch, const Task& task, const Seat& seat) {
  const Input& b = launch.b;
  for (int64_t from = 0; from < task.depth; from += kCpuDirectDepth) {
    const int64_t depth = std::min<int64_t>(kCpuDirectDepth, task.depth - from);
    unpack_a(launch, task, from, depth, seat);
    launch.kernel.direct(b.operand.type.dtype, static_cast<int>(task.rows), task.columns, depth, seat.a,
                         depth + kCpuRowPadding, b.at(task.expert, task.column, from), b.operand.columns, seat.sums,
                         launch.knobs.block_n, from > 0);
  }
}

/// Where few rows use B once, its panels stay in the first-level cache between packing and use.
void packed_sums(const Launch& launch, const Task& task, Seat& seat) {
  const bool packed = seat.packed_expert == task.expert && seat.packed_column == task.column;
  const int64_t step = task.direct ? std::min(launch.knobs.block_k, kCpuDirectStep) : launch.knobs.block_k;
  for (int64_t from = 0; from < task.depth; from += step) {
    const int64_t depth = std::min(step, task.depth - from);
    float* panels = task.keeps_b ? seat.b + from * launch.knobs.block_n : seat.b;
    if (!packed) pack_b(launch, task, from, depth, panels);
    unpack_a(launch, task, from, depth, seat);
    multiply(launch, task, seat, depth, panels, from > 0);
  }
  seat.packed_expert = task.keeps_b ? task.expert : -1;
  seat.packed_column = task.column;
}

void sum(const Launch& launch, const Task& task, Seat& seat) {
  if (task.depth == 0)
    std::fill_n(seat.sums, task.rows * launch.knobs.block_n, 0.0F);
  else if (task.direct && is_k_major(launch.b.operand))
    direct_sums(launch, task, seat);
  else
    packed_sums(launch, task, seat);
}

/// Adds what is in D in a row of the task to its sums.
void add_before(const Launch& launch, const Task& task, int64_t row, float* sums) {
  constexpr int64_t kPiece = 256;
  float before[kPiece];
  for (int64_t column = 0; column < task.columns; column += kPiece) {
    const int64_t count = std::min(kPiece, task.columns - column);
    launch.kernel.unpack(launch.product.d.type.dtype, launch.d_at(task.expert, task.row + row, task.column + column),
                         count, before);
    for (int64_t c = 0; c < count; ++c) sums[column + c] += before[c];
  }
}

/// The task's part of the row's weight gradient.
void store_dot(const Launch& launch, const Task& task, int64_t row, const float* sums) {
  const Input x = input_x(launch.product, launch.matrices);
  const int64_t in_order = first_row(launch.product, x.operand, task.expert) + row;
  launch.workspace.partials.dots.as<float>()[in_order * launch.column_blocks() + task.column / launch.knobs.block_n] =
      dot(launch.kernel, x.operand.type.dtype, sums, x.at(task.expert, row, task.column), task.columns);
}

/// Rounds the sums and stores them where they belong.
void store(const Launch& launch, const Task& task, const Seat& seat) {
  const Product& product = launch.product;
  const Dtype dtype = launch.d.type.dtype;
  const bool rounded = product.weighting == Weighting::rounded_result;
  for (int64_t r = 0; r < task.rows; ++r) {
    float* sums = seat.sums + r * launch.knobs.block_n;
    if (product.weight_gradient) store_dot(launch, task, task.row + r, sums);
    float weight = 1;
    if (weights_result(product))
      weight = weight_of_row(product, launch.matrices.topk_weights, task.expert, task.row + r);
    if (rounded) weight = round_to(dtype, weight);
    if (product.weighting == Weighting::result)
      for (int64_t c = 0; c < task.columns; ++c) sums[c] *= weight;
    if (product.accumulates) add_before(launch, task, r, sums);
    launch.kernel.store(dtype, sums, task.columns, rounded ? &weight : nullptr,
                        launch.d_at(task.expert, task.row + r, task.column));
  }
}

Seat take_seat(const Launch& launch, const CpuScratch& scratch, int thread) {
  auto* memory = launch.workspace.scratch[thread].as<float>();
  return {.b = memory, .a = memory + scratch.b, .sums = memory + scratch.b + scratch.a};
}

void grow(Workspace& workspace, int threads, int64_t bytes) {
  if (static_cast<int>(workspace.scratch.size()) < threads) workspace.scratch.resize(threads);
  for (int thread = 0; thread < threads; ++thread)
    if (workspace.scratch[thread].bytes() < bytes) workspace.scratch[thread] = Buffer::in_one_place(bytes);
}

}  // namespace

void grouped_gemm(const Product& product, const Matrices& matrices, const CpuKnobs& knobs, const Microkernel& kernel,
                  ThreadPool& pool, Workspace& workspace) {
  prepare(product, blocks(product.n, knobs.block_n), workspace.partials);
  const Launch launch{
      .product = product, .matrices = matrices, .knobs = knobs, .kernel = kernel, .workspace = workspace};
  const CpuScratch scratch = cpu_scratch(knobs, product);
  grow(workspace, knobs.threads, scratch.bytes());
  lay_out(product, knobs, workspace);
  const int64_t tasks = workspace.first_task.back();
  struct alignas(64) {
    std::atomic<int64_t> next{0};
  } counter;  // on a cache line of its own
  pool.run(knobs.threads, [&](int thread) {
    Seat seat = take_seat(launch, scratch, thread);
    for (int64_t i = counter.next.fetch_add(1, std::memory_order_relaxed); i < tasks;
         i = counter.next.fetch_add(1, std::memory_order_relaxed)) {
      const Task task = task_at(launch, i);
      sum(launch, task, seat);
      store(launch, task, seat);
    }
  });
  add_up(product, matrices, launch.column_blocks(), workspace.partials, kernel, knobs.threads, pool);
}

}  // namespace moetune
