// Tasks, packing and storing of one launch. What is multiplied innermost is in microkernel.inc.
#include "backend/cpu/grouped_gemm.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "variant/cpu.h"

namespace moetune {
namespace {

int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// One block of Y to compute: `rows` rows from `row` (in expert order) and `columns` columns of one expert.
struct Task {
  int64_t expert = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
  bool direct = false;   // few rows: W is read where it lies
  bool keeps_w = false;  // another block of rows follows: packed W stays
};

/// A thread's share of the scratch memory, and the W that lies packed there.
struct Seat {
  float* w = nullptr;
  float* x = nullptr;
  float* sums = nullptr;
  int64_t packed_expert = -1;
  int64_t packed_column = -1;
};

struct Launch {
  const Args& args;
  const Fusion& fusion;
  Dtype dtype;
  const CpuKnobs& knobs;
  const Microkernel& kernel;
  const Workspace& workspace;
  CpuScratch scratch;
  int64_t element;  // bytes

  const std::byte* x_row(int64_t row) const {
    const int64_t source = fusion.permute_x ? args.gather_indices[row] / args.top_k : row;
    return static_cast<const std::byte*>(args.x) + source * args.k * element;
  }
  const std::byte* w_row(int64_t expert, int64_t column) const {
    return static_cast<const std::byte*>(args.w) + (expert * args.n + column) * args.k * element;
  }
  std::byte* y_at(int64_t row, int64_t column) const {
    const int64_t target = fusion.permute_y ? args.gather_indices[row] : row;
    return static_cast<std::byte*>(args.y) + (target * args.n + column) * element;
  }
};

bool is_direct(int64_t rows) { return rows <= kCpuDirectRows; }

/// Blocks of rows of an expert. The direct path takes all its rows at once, since it reads W once for them.
int64_t row_blocks(int64_t rows, int block_m) { return is_direct(rows) ? (rows > 0) : blocks(rows, block_m); }

/// Running sums of rows, and of tasks with the experts of most rows first: what comes last is small then, so that the
/// threads end together whoever took what.
void lay_out(const Args& args, const CpuKnobs& c, Workspace& workspace) {
  workspace.first_row.assign(1, 0);
  workspace.order.clear();
  for (int expert = 0; expert < args.experts; ++expert) {
    workspace.first_row.push_back(workspace.first_row.back() + args.m_sizes[expert]);
    if (args.m_sizes[expert] > 0) workspace.order.push_back(expert);
  }
  std::sort(workspace.order.begin(), workspace.order.end(), [&](int a, int b) {
    return args.m_sizes[a] != args.m_sizes[b] ? args.m_sizes[a] > args.m_sizes[b] : a < b;
  });
  workspace.first_task.assign(1, 0);
  for (const int expert : workspace.order)
    workspace.first_task.push_back(workspace.first_task.back() +
                                   row_blocks(args.m_sizes[expert], c.block_m) * blocks(args.n, c.block_n));
}

Task task_at(const Launch& launch, int64_t index) {
  const auto& first_task = launch.workspace.first_task;
  const auto& first_row = launch.workspace.first_row;
  const CpuKnobs& c = launch.knobs;
  const int64_t place = std::upper_bound(first_task.begin(), first_task.end(), index) - first_task.begin() - 1;
  const int64_t expert = launch.workspace.order[place];
  const int64_t rows = first_row[expert + 1] - first_row[expert];
  const int64_t m_blocks = row_blocks(rows, c.block_m);
  const int64_t inside = index - first_task[place];
  const int64_t step = is_direct(rows) ? rows : c.block_m;
  const int64_t row = inside % m_blocks * step;
  const int64_t column = inside / m_blocks * c.block_n;
  return {.expert = expert,
          .row = first_row[expert] + row,
          .rows = std::min(step, rows - row),
          .column = column,
          .columns = std::min<int64_t>(c.block_n, launch.args.n - column),
          .direct = is_direct(rows),
          .keeps_w = m_blocks > 1 && launch.scratch.keeps_w};
}

/// Rows of X over [from, from + depth) of k, as floats. Rows are short and may lie anywhere: ask for them ahead of
/// time.
void unpack_x(const Launch& launch, const Task& task, int64_t from, int64_t depth, int64_t stride, float* x) {
  constexpr int64_t kAhead = 4, kLine = 64;
  const int64_t bytes = depth * launch.element;
  const auto source = [&](int64_t r) { return launch.x_row(task.row + r) + from * launch.element; };
  for (int64_t r = 0; r < task.rows; ++r) {
    if (r + kAhead < task.rows) {
      const std::byte* ahead = source(r + kAhead);
      for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(ahead + byte);
    }
    launch.kernel.unpack(launch.dtype, source(r), depth, x + r * stride);
  }
}

void direct_sums(const Launch& launch, const Task& task, Seat& seat) {
  for (int64_t from = 0; from < launch.args.k; from += kCpuDirectDepth) {
    const int64_t depth = std::min<int64_t>(kCpuDirectDepth, launch.args.k - from);
    const int64_t stride = depth + kCpuRowPadding;
    unpack_x(launch, task, from, depth, stride, seat.x);
    launch.kernel.direct(launch.dtype, static_cast<int>(task.rows), task.columns, depth, seat.x, stride,
                         launch.w_row(task.expert, task.column) + from * launch.element, launch.args.k, seat.sums,
                         launch.knobs.block_n, from > 0);
  }
}

/// Panels of W over one block of k, one after another: [ceil(columns / tile)][depth][tile].
void pack_w(const Launch& launch, const Task& task, int64_t from, int64_t depth, float* panels) {
  const int tile = launch.kernel.tile_columns;
  for (int64_t column = 0; column < task.columns; column += tile)
    launch.kernel.pack(launch.dtype, launch.w_row(task.expert, task.column + column) + from * launch.element,
                       launch.args.k, std::min<int64_t>(tile, task.columns - column), depth, panels + column * depth);
}

void multiply(const Launch& launch, const Task& task, const Seat& seat, int64_t depth, const float* panels, bool add) {
  const int tile_rows = launch.kernel.tile_rows, tile_columns = launch.kernel.tile_columns;
  const int64_t x_stride = depth + kCpuRowPadding, sums_stride = launch.knobs.block_n;
  for (int64_t column = 0; column < task.columns; column += tile_columns)
    for (int64_t row = 0; row < task.rows; row += tile_rows)
      launch.kernel.tile(static_cast<int>(std::min<int64_t>(tile_rows, task.rows - row)), depth,
                         seat.x + row * x_stride, x_stride, panels + column * depth,
                         seat.sums + row * sums_stride + column, sums_stride, add);
}

void packed_sums(const Launch& launch, const Task& task, Seat& seat) {
  const bool packed = seat.packed_expert == task.expert && seat.packed_column == task.column;
  for (int64_t from = 0; from < launch.args.k; from += launch.knobs.block_k) {
    const int64_t depth = std::min<int64_t>(launch.knobs.block_k, launch.args.k - from);
    float* panels = task.keeps_w ? seat.w + from * launch.knobs.block_n : seat.w;
    if (!packed) pack_w(launch, task, from, depth, panels);
    unpack_x(launch, task, from, depth, depth + kCpuRowPadding, seat.x);
    multiply(launch, task, seat, depth, panels, from > 0);
  }
  seat.packed_expert = task.keeps_w ? task.expert : -1;
  seat.packed_column = task.column;
}

/// Rounds the sums and stores them where they belong.
void store(const Launch& launch, const Task& task, const Seat& seat) {
  for (int64_t r = 0; r < task.rows; ++r) {
    float weight = 0;
    if (launch.fusion.topk_weights)
      weight = round_to(launch.dtype, launch.args.topk_weights[launch.args.gather_indices[task.row + r]]);
    launch.kernel.store(launch.dtype, seat.sums + r * launch.knobs.block_n, task.columns,
                        launch.fusion.topk_weights ? &weight : nullptr, launch.y_at(task.row + r, task.column));
  }
}

Seat take_seat(const Launch& launch, int thread) {
  auto* memory = launch.workspace.scratch[thread].as<float>();
  const CpuScratch& scratch = launch.scratch;
  return {.w = memory, .x = memory + scratch.w, .sums = memory + scratch.w + scratch.x};
}

void grow(Workspace& workspace, int threads, int64_t bytes) {
  if (static_cast<int>(workspace.scratch.size()) < threads) workspace.scratch.resize(threads);
  for (int thread = 0; thread < threads; ++thread)
    if (workspace.scratch[thread].bytes() < bytes) workspace.scratch[thread] = Buffer::in_one_place(bytes);
}

}  // namespace

void grouped_gemm(const Args& args, const Shape& shape, const CpuKnobs& knobs, const Microkernel& kernel,
                  ThreadPool& pool, Workspace& workspace) {
  const Launch launch{.args = args,
                      .fusion = shape.fusion,
                      .dtype = shape.layer.dtype,
                      .knobs = knobs,
                      .kernel = kernel,
                      .workspace = workspace,
                      .scratch = cpu_scratch(knobs, args.k),
                      .element = size_bytes(shape.layer.dtype)};
  grow(workspace, knobs.threads, launch.scratch.bytes());
  lay_out(args, knobs, workspace);
  const int64_t tasks = workspace.first_task.back();
  struct alignas(64) {
    std::atomic<int64_t> next{0};
  } counter;  // on a cache line of its own
  pool.run(knobs.threads, [&](int thread) {
    Seat seat = take_seat(launch, thread);
    for (int64_t i = counter.next.fetch_add(1, std::memory_order_relaxed); i < tasks;
         i = counter.next.fetch_add(1, std::memory_order_relaxed)) {
      const Task task = task_at(launch, i);
      task.direct ? direct_sums(launch, task, seat) : packed_sums(launch, task, seat);
      store(launch, task, seat);
    }
  });
}

}  // namespace moetune
