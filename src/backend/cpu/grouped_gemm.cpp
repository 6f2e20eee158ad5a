// Tasks, packing, storing and the last pass of one launch.
#include "backend/cpu/grouped_gemm.h"

#include <algorithm>
#include <cstddef>

#include "workload/product.h"

namespace moetune {
namespace {

constexpr int64_t kPiece = 256;  // columns that are unpacked at a time

struct Launch {
  const Product& product;  // without the last pass
  const Matrices& matrices;
  const CpuKnobs& knobs;
  const Tile& tile;
  Input a = input_a(product, matrices);
  Input b = input_b(product, matrices);
};

struct Blocks {
  float* a;     // row after row of memory: [block_m, block_k] where K is contiguous, else [block_k, block_m]
  float* b;     // panels [block_n / kTileColumns, block_k, kTileColumns]
  float* sums;  // [block_m, block_n]
};

/// Experts with most rows first: what comes last is small then, and the threads end together. Blocks of rows follow one
/// another, since they share a block of B.
void lay_out(const Product& product, const CpuKnobs& knobs, std::vector<Task>& tasks) {
  std::vector<int64_t> order;
  for (int64_t expert = 0; expert < experts(product); ++expert)
    if (!product.accumulates || extent(product, expert, Axis::k) > 0) order.push_back(expert);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return product.m_sizes[static_cast<size_t>(a)] > product.m_sizes[static_cast<size_t>(b)];
  });
  tasks.clear();
  for (const int64_t expert : order)
    for (int64_t column = 0; column < product.n; column += knobs.block_n)
      for (int64_t row = 0; row < extent(product, expert, Axis::m); row += knobs.block_m)
        tasks.push_back({.expert = expert, .row = row, .column = column});
}

/// `rows` rows of A over [from, from + depth) of K.
void unpack_a(const Launch& launch, const Task& task, int64_t rows, int64_t from, int64_t depth, float* target) {
  if (is_k_major(launch.a.operand))
    for (int64_t row = 0; row < rows; ++row)
      launch.a.unpack_scaled(task.expert, task.row + row, from, depth, target + row * launch.knobs.block_k);
  else
    for (int64_t k = 0; k < depth; ++k)
      launch.a.unpack_scaled(task.expert, from + k, task.row, rows, target + k * launch.knobs.block_m);
}

/// Up to kTileColumns rows of a B whose K is contiguous to a panel, in squares of 4 x 4. The last may reach beyond
/// depth.
void transpose(const Input& b, int64_t expert, int64_t column, int64_t columns, int64_t from, int64_t depth,
               float* panel) {
  constexpr int64_t kSteps = 64;
  float rows[kTileColumns][kSteps + 4] = {};  // in different cache sets
  for (int64_t k = 0; k < depth; k += kSteps) {
    const int64_t count = std::min(kSteps, depth - k);
    for (int64_t c = 0; c < columns; ++c) b.unpack_scaled(expert, column + c, from + k, count, rows[c]);
    for (int64_t i = 0; i < count; i += 4)
      for (int64_t c = 0; c < kTileColumns; c += 4)
        for (int64_t down = 0; down < 4; ++down)
          for (int64_t right = 0; right < 4; ++right)
            panel[(k + i + down) * kTileColumns + c + right] = rows[c + right][i + down];
  }
}

/// A row of a B whose N is contiguous to its places in the panels.
void spread(const Input& b, int64_t expert, int64_t row, int64_t column, int64_t columns, int64_t pitch,
            float* panels) {
  for (int64_t first = 0; first < columns; first += kPiece) {
    float piece[kPiece] = {};
    const int64_t count = std::min(kPiece, columns - first);
    b.unpack_scaled(expert, row, column + first, count, piece);
    for (int64_t c = 0; c < count; c += kTileColumns)
      std::copy_n(piece + c, kTileColumns, panels + (first + c) * pitch);
  }
}

/// `columns` columns of B over [from, from + depth) of K to panels; zeros fill the last.
void pack_b(const Launch& launch, const Task& task, int64_t columns, int64_t from, int64_t depth, float* panels) {
  const int64_t pitch = launch.knobs.block_k;
  if (is_k_major(launch.b.operand))
    for (int64_t c = 0; c < columns; c += kTileColumns)
      transpose(launch.b, task.expert, task.column + c, std::min<int64_t>(kTileColumns, columns - c), from, depth,
                panels + c * pitch);
  else
    for (int64_t k = 0; k < depth; ++k)
      spread(launch.b, task.expert, from + k, task.column, columns, pitch, panels + k * kTileColumns);
}

/// Whole tiles, whatever lies in rows of A beyond the last: their sums are not stored.
void sum(const Launch& launch, const Task& task, int64_t rows, int64_t columns, const Blocks& blocks) {
  const CpuKnobs& knobs = launch.knobs;
  const bool k_major = is_k_major(launch.a.operand);
  const int64_t row_stride = k_major ? knobs.block_k : 1, depth_stride = k_major ? 1 : knobs.block_m;
  const int64_t k = extent(launch.product, task.expert, Axis::k);
  std::fill_n(blocks.sums, (rows + kTileRows - 1) / kTileRows * kTileRows * knobs.block_n, 0.0F);
  for (int64_t from = 0; from < k; from += knobs.block_k) {
    const int64_t depth = std::min<int64_t>(knobs.block_k, k - from);
    unpack_a(launch, task, rows, from, depth, blocks.a);
    pack_b(launch, task, columns, from, depth, blocks.b);
    for (int64_t column = 0; column < columns; column += kTileColumns)
      for (int64_t row = 0; row < rows; row += kTileRows)
        launch.tile.add(depth, blocks.a + row * row_stride, row_stride, depth_stride, blocks.b + column * knobs.block_k,
                        blocks.sums + row * knobs.block_n + column, knobs.block_n);
  }
}

/// Weights sums [count] of a row of D, from a column on, adds what is there before where the product accumulates, and
/// stores them, rounded. Changes the sums.
void store(const Product& product, const Matrices& matrices, int64_t expert, int64_t row, int64_t column, int64_t count,
           float* sums) {
  const Dtype dtype = product.d.type.dtype;
  const int64_t index = memory_row(product, product.d, expert, row) * product.d.columns + column;
  auto* target = static_cast<std::byte*>(matrices.d) + index * size_bytes(dtype);
  if (weights_result(product)) {
    float weight = weight_of_row(product, matrices.topk_weights, expert, row);
    if (product.weighting == Weighting::rounded_result) {
      weight = round_to(dtype, weight);
      from_floats(dtype, sums, count, target);
      to_floats(dtype, target, count, sums);
    }
    for (int64_t c = 0; c < count; ++c) sums[c] *= weight;
  }
  if (product.accumulates) {
    float before[kPiece];
    for (int64_t first = 0; first < count; first += kPiece) {
      const int64_t here = std::min(kPiece, count - first);
      input_d(product, matrices).unpack(expert, row, column + first, here, before);
      for (int64_t c = 0; c < here; ++c) sums[first + c] += before[c];
    }
  }
  from_floats(dtype, sums, count, target);
}

void run_tasks(const Launch& launch, ThreadPool& pool, Workspace& workspace) {
  const CpuKnobs& knobs = launch.knobs;
  const Product& product = launch.product;
  lay_out(product, knobs, workspace.tasks);
  workspace.scratch.resize(std::max(workspace.scratch.size(), static_cast<size_t>(knobs.threads)));
  for (Buffer& buffer : workspace.scratch) buffer.grow(cpu_scratch_bytes(knobs));
  pool.for_each(knobs.threads, static_cast<int64_t>(workspace.tasks.size()), [&](int thread, int64_t i) {
    const Task& task = workspace.tasks[static_cast<size_t>(i)];
    auto* memory = workspace.scratch[static_cast<size_t>(thread)].as<float>();
    const int64_t a = int64_t{knobs.block_m} * knobs.block_k, b = int64_t{knobs.block_n} * knobs.block_k;
    const Blocks blocks{.a = memory, .b = memory + a, .sums = memory + a + b};
    const int64_t rows = std::min<int64_t>(knobs.block_m, extent(product, task.expert, Axis::m) - task.row);
    const int64_t columns = std::min<int64_t>(knobs.block_n, product.n - task.column);
    sum(launch, task, rows, columns, blocks);
    for (int64_t row = 0; row < rows; ++row)
      store(product, launch.matrices, task.expert, task.row + row, task.column, columns,
            blocks.sums + row * knobs.block_n);
  });
}

/// D's row of a token: the sum of its slots' sums, in the order of slots.
void add_slots(const Product& product, const Matrices& matrices, const float* sums, int threads, ThreadPool& pool) {
  const std::vector<int32_t> rows = rows_of_slots(product);
  const int64_t pieces = (product.n + kPiece - 1) / kPiece;
  pool.for_each(threads, product.d.rows * pieces, [&](int, int64_t i) {
    const int64_t token = i / pieces, column = i % pieces * kPiece, count = std::min(kPiece, product.n - column);
    float total[kPiece] = {};
    for (int64_t slot = token * product.top_k; slot < (token + 1) * product.top_k; ++slot)
      if (const int32_t row = rows[static_cast<size_t>(slot)]; row >= 0)
        for (int64_t c = 0; c < count; ++c) total[c] += sums[row * product.n + column + c];
    const int64_t index = token * product.d.columns + column;
    from_floats(product.d.type.dtype, total, count,
                static_cast<std::byte*>(matrices.d) + index * size_bytes(product.d.type.dtype));
  });
}

/// dweights from the sums, and D's rows from the same. Changes the sums.
void multiply_by_x(const Product& product, const Matrices& matrices, float* sums, int threads, ThreadPool& pool) {
  std::fill_n(matrices.dweights, product.slots, 0.0F);
  pool.for_each(threads, routed_rows(product), [&](int, int64_t i) {
    const Place place = place_of(product, product.d, i);
    float* row = sums + i * product.n;
    float x[kPiece];
    double total = 0;
    for (int64_t column = 0; column < product.n; column += kPiece) {
      const int64_t count = std::min(kPiece, product.n - column);
      input_x(product, matrices).unpack(place.expert, place.row, column, count, x);
      for (int64_t c = 0; c < count; ++c) total += static_cast<double>(row[column + c]) * static_cast<double>(x[c]);
    }
    matrices.dweights[product.gather_indices[static_cast<size_t>(i)]] = static_cast<float>(total);
    store(product, matrices, place.expert, place.row, 0, product.n, row);
  });
}

}  // namespace

void grouped_gemm(const Product& product, const Matrices& matrices, const CpuKnobs& knobs, ThreadPool& pool,
                  Workspace& workspace, const Tile& tile) {
  if (!takes_another_pass(product))
    return run_tasks({.product = product, .matrices = matrices, .knobs = knobs, .tile = tile}, pool, workspace);
  workspace.sums.grow(routed_rows(product) * product.n * static_cast<int64_t>(sizeof(float)));
  auto* sums = workspace.sums.as<float>();
  const Product first = before_last_pass(product);
  Matrices to_sums = matrices;
  to_sums.d = sums;
  run_tasks({.product = first, .matrices = to_sums, .knobs = knobs, .tile = tile}, pool, workspace);
  if (sums_slots(product))
    add_slots(product, matrices, sums, knobs.threads, pool);
  else
    multiply_by_x(product, matrices, sums, knobs.threads, pool);
}

}  // namespace moetune
