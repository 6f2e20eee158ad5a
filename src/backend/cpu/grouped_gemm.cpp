// Tasks, packing, the innermost loop, storing and the last pass of one launch.
#include "backend/cpu/grouped_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "workload/product/activate.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

constexpr int64_t kPiece = 256;  // columns that are unpacked at a time

/// Arrays of fixed sizes: the compiler keeps them in vector registers, as many rows at a time as those of an
/// instruction set hold.
template <int Rows>
__attribute__((always_inline)) inline void add(int64_t depth, const float* a, const float* b, float* sums,
                                               int64_t pitch) {
  for (int first = 0; first < kTileRows; first += Rows) {
    float sum[Rows][kTileColumns] = {};
    for (int64_t k = 0; k < depth; ++k)
      for (int row = 0; row < Rows; ++row)
        for (int column = 0; column < kTileColumns; ++column)
          sum[row][column] += a[k * kTileRows + first + row] * b[k * kTileColumns + column];
    for (int row = 0; row < Rows; ++row)
      for (int column = 0; column < kTileColumns; ++column) sums[(first + row) * pitch + column] += sum[row][column];
  }
}

void add_generic(int64_t depth, const float* a, const float* b, float* sums, int64_t pitch) {
  add<1>(depth, a, b, sums, pitch);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void add_avx2(int64_t depth, const float* a, const float* b, float* sums,
                                                  int64_t pitch) {
  add<2>(depth, a, b, sums, pitch);
}
__attribute__((target("avx512f,avx2,fma"))) void add_avx512(int64_t depth, const float* a, const float* b, float* sums,
                                                            int64_t pitch) {
  add<8>(depth, a, b, sums, pitch);
}
#endif

struct Launch {
  const Product& product;  // without the last pass
  const Matrices& matrices;
  const CpuKnobs& knobs;
  Input a = input_a(product, matrices);
  Input b = input_b(product, matrices);
};

/// Experts with most rows first: what comes last is small then, and the threads end together. Blocks of rows follow one
/// another, since they share a block of B.
void lay_out(const Product& product, const CpuKnobs& knobs, std::vector<Task>& tasks) {
  std::vector<int64_t> order;
  for (int64_t expert = 0; expert < experts(product); ++expert)
    if (!product.accumulates || extent(product, expert, Axis::k) > 0) order.push_back(expert);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return product.m_sizes[static_cast<size_t>(a)] > product.m_sizes[static_cast<size_t>(b)];
  });
  tasks.clear();
  for (const int64_t expert : order)
    for (int64_t column = 0; column < product.n; column += knobs.block_n)
      for (int64_t row = 0; row < extent(product, expert, Axis::m); row += knobs.block_m)
        tasks.push_back({.expert = expert, .row = row, .column = column});
}

/// Panels of Width of the part's M or N: [depth, Width] each, `pitch` floats from one to the next. What fills the last
/// has no meaning. Where K is contiguous, it is transposed in squares of 4 x 4, which may reach beyond depth.
template <int64_t Width>
void pack(const Input& input, const Part& part, int64_t pitch, float* panels) {
  constexpr int64_t kSteps = 2048 / Width;
  if (is_k_major(input.operand)) {
    float rows[Width][kSteps + 4] = {};  // in different cache sets
    for (int64_t first = 0; first < part.count; first += Width, panels += pitch)
      for (int64_t k = 0; k < part.depth; k += kSteps) {
        const int64_t count = std::min(kSteps, part.depth - k);
        for (int64_t i = 0; i < std::min(Width, part.count - first); ++i)
          input.unpack_scaled(part.expert, part.first + first + i, part.from + k, count, rows[i]);
        for (int64_t step = 0; step < count; step += 4)
          for (int64_t i = 0; i < Width; i += 4)
            for (int64_t down = 0; down < 4; ++down)
              for (int64_t right = 0; right < 4; ++right)
                panels[(k + step + down) * Width + i + right] = rows[i + right][step + down];
      }
    return;
  }
  for (int64_t k = 0; k < part.depth; ++k)
    for (int64_t first = 0; first < part.count; first += kPiece) {
      float piece[kPiece] = {};
      const int64_t count = std::min(kPiece, part.count - first);
      input.unpack_scaled(part.expert, part.from + k, part.first + first, count, piece);
      for (int64_t i = 0; i < count; i += Width)
        std::copy_n(piece + i, Width, panels + (first + i) / Width * pitch + k * Width);
    }
}

/// Whole tiles: `sums` has room for them, `a` and `b` for a block each.
void sum(const Launch& launch, const Task& task, int64_t rows, int64_t columns, float* a, float* b, float* sums) {
  const CpuKnobs& knobs = launch.knobs;
  const int64_t k = extent(launch.product, task.expert, Axis::k);
  const int64_t a_pitch = int64_t{knobs.block_k} * kTileRows, b_pitch = int64_t{knobs.block_k} * kTileColumns;
  std::fill_n(sums, (rows + kTileRows - 1) / kTileRows * kTileRows * knobs.block_n, 0.0F);
  for (int64_t from = 0; from < k; from += knobs.block_k) {
    const int64_t depth = std::min<int64_t>(knobs.block_k, k - from);
    pack<kTileRows>(launch.a, {task.expert, task.row, rows, from, depth}, a_pitch, a);
    pack<kTileColumns>(launch.b, {task.expert, task.column, columns, from, depth}, b_pitch, b);
    for (int64_t column = 0; column < columns; column += kTileColumns)
      for (int64_t row = 0; row < rows; row += kTileRows)
        best_tile().add(depth, a + row / kTileRows * a_pitch, b + column / kTileColumns * b_pitch,
                        sums + row * knobs.block_n + column, knobs.block_n);
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
      Input{product, product.d, matrices.d}.unpack(expert, row, column + first, here, before);
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
    auto* const sums = memory + a + b;
    const int64_t rows = std::min<int64_t>(knobs.block_m, extent(product, task.expert, Axis::m) - task.row);
    const int64_t columns = std::min<int64_t>(knobs.block_n, product.n - task.column);
    sum(launch, task, rows, columns, memory, memory + a, sums);
    for (int64_t row = 0; row < rows; ++row)
      store(product, launch.matrices, task.expert, task.row + row, task.column, columns, sums + row * knobs.block_n);
  });
}

/// D's row of a token: the sum of its slots' rows, elements of D in expert order, in the order of slots.
void add_slots(const Product& product, const Matrices& matrices, const std::byte* slots, int threads,
               ThreadPool& pool) {
  const Dtype dtype = product.d.type.dtype;
  const std::vector<int32_t> rows = rows_of_slots(product);
  const int64_t pieces = (product.n + kPiece - 1) / kPiece;
  pool.for_each(threads, product.d.rows * pieces, [&](int, int64_t i) {
    const int64_t token = i / pieces, column = i % pieces * kPiece, count = std::min(kPiece, product.n - column);
    float total[kPiece] = {}, part[kPiece];
    for (int64_t slot = token * product.top_k; slot < (token + 1) * product.top_k; ++slot)
      if (const int32_t row = rows[static_cast<size_t>(slot)]; row >= 0) {
        to_floats(dtype, slots + (row * product.n + column) * size_bytes(dtype), count, part);
        for (int64_t c = 0; c < count; ++c) total[c] += part[c];
      }
    const int64_t index = token * product.d.columns + column;
    from_floats(dtype, total, count, static_cast<std::byte*>(matrices.d) + index * size_bytes(dtype));
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
      Input{product, product.weight_gradient->x, matrices.x}.unpack(place.expert, place.row, column, count, x);
      for (int64_t c = 0; c < count; ++c) total += static_cast<double>(row[column + c]) * static_cast<double>(x[c]);
    }
    matrices.dweights[product.gather_indices[static_cast<size_t>(i)]] = static_cast<float>(total);
    store(product, matrices, place.expert, place.row, 0, product.n, row);
  });
}

/// D's rows of the gradients of gates and ups, X again, and dweights where the product has them.
void multiply_by_slopes(const Product& product, const Matrices& matrices, const float* sums, int threads,
                        ThreadPool& pool) {
  const int64_t n = product.n;
  const Dtype dtype = product.gate_gradient->x.type.dtype;
  if (product.weight_gradient) std::fill_n(matrices.dweights, product.slots, 0.0F);
  pool.for_each(threads, routed_rows(product), [&](int, int64_t i) {
    const Place place = place_of(product, product.d, i);
    std::vector<float> h(static_cast<size_t>(2 * n)), dh(h.size()), x(static_cast<size_t>(n));
    Input{product, product.gate_gradient->h, matrices.h}.unpack(place.expert, place.row, 0, 2 * n, h.data());
    const float weight =
        weights_result(product) ? weight_of_row(product, matrices.topk_weights, place.expert, place.row) : 1;
    double total = 0;
    for (int64_t column = 0; column < n; ++column) {
      const auto at = pair_at(product.interleaved, n, column);
      const auto g = static_cast<double>(h[static_cast<size_t>(at.gate)]),
                 u = static_cast<double>(h[static_cast<size_t>(at.up)]);
      const auto sum = static_cast<double>(sums[i * n + column]), weighted = sum * static_cast<double>(weight);
      const Slopes slope = slopes(product.activation, g, u);
      float& one = x[static_cast<size_t>(column)];
      one = round_to(dtype, static_cast<float>(activate(product.activation, g, u)));
      total += sum * static_cast<double>(one);
      dh[static_cast<size_t>(at.gate)] = static_cast<float>(weighted * slope.gate);
      dh[static_cast<size_t>(at.up)] = static_cast<float>(weighted * slope.up);
    }
    if (product.weight_gradient)
      matrices.dweights[product.gather_indices[static_cast<size_t>(i)]] = static_cast<float>(total);
    const auto put = [&](const Operand& operand, void* memory, const std::vector<float>& values) {
      const int64_t row = memory_row(product, operand, place.expert, place.row);
      from_floats(dtype, values.data(), operand.columns, static_cast<std::byte*>(memory) + row * row_bytes(operand));
    };
    put(product.d, matrices.d, dh);
    put(product.gate_gradient->x, matrices.second, x);
  });
}

/// Writes the scales of a row of D, and divides its values by them.
void quantise(const Product& product, const Matrices& matrices, int64_t expert, int64_t row,
              std::vector<float>& values) {
  const int64_t block = product.d.type.scales.columns, columns = std::ssize(values);
  float* scale = matrices.d_scales + scale_index(product, product.d, expert, row, 0);
  for (int64_t first = 0; first < columns; first += block, ++scale) {
    const auto end = values.begin() + std::min(first + block, columns);
    float most = kMinLargest;
    for (auto value = values.begin() + first; value < end; ++value) most = std::max(most, std::abs(*value));
    *scale = most / kMaxFp8;
    for (auto value = values.begin() + first; value < end; ++value) *value /= *scale;
  }
}

/// D's rows from sums with their bias, gates and ups combined. Changes the sums.
void finish_rows(const Product& product, const Matrices& matrices, float* sums, int threads, ThreadPool& pool) {
  pool.for_each(threads, routed_rows(product), [&](int, int64_t i) {
    const Place place = place_of(product, product.d, i);
    float* row = sums + i * product.n;
    if (product.bias) {
      const std::vector<float> bias = bias_of(product, matrices, place.expert);
      for (int64_t column = 0; column < product.n; ++column) row[column] += bias[static_cast<size_t>(column)];
    }
    if (product.h)
      from_floats(product.h->type.dtype, row, product.n,
                  static_cast<std::byte*>(matrices.second) + i * row_bytes(*product.h));
    std::vector<float> values(row, row + product.d.columns);
    if (product.activation != Activation::none)
      for (int64_t column = 0; column < product.d.columns; ++column) {
        const auto [gate, up] = gate_pair(product, column);
        values[static_cast<size_t>(column)] = static_cast<float>(
            activate(product.activation, static_cast<double>(row[gate]), static_cast<double>(row[up])));
      }
    if (matrices.d_scales) quantise(product, matrices, place.expert, place.row, values);
    store(product, matrices, place.expert, place.row, 0, product.d.columns, values.data());
  });
}

}  // namespace

std::vector<Tile> usable_tiles() {
  std::vector<Tile> usable = {{"generic", add_generic}};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) usable.push_back({"avx2", add_avx2});
  if (avx2 && __builtin_cpu_supports("avx512f")) usable.push_back({"avx512", add_avx512});
#endif
  return usable;
}

const Tile& best_tile() {
  static const Tile best = usable_tiles().back();
  return best;
}

void grouped_gemm(const Product& product, const Matrices& matrices, const CpuKnobs& knobs, ThreadPool& pool,
                  Workspace& workspace) {
  if (!takes_another_pass(product) && !is_finished(product))
    return run_tasks({.product = product, .matrices = matrices, .knobs = knobs}, pool, workspace);
  workspace.sums.grow(routed_rows(product) * product.n * static_cast<int64_t>(sizeof(float)));
  auto* sums = workspace.sums.as<float>();
  Product first = without_finish(before_last_pass(product));
  if (is_finished(product)) {
    first.d.order = RowOrder::in_place, first.d.rows = routed_rows(product), first.d.type = plain_type(Dtype::fp32);
    first.weighting = Weighting::none;
  }
  Matrices to_sums = matrices;
  to_sums.d = sums;
  run_tasks({.product = first, .matrices = to_sums, .knobs = knobs}, pool, workspace);
  if (is_finished(product))
    finish_rows(product, matrices, sums, knobs.threads, pool);
  else if (product.gate_gradient)
    multiply_by_slopes(product, matrices, sums, knobs.threads, pool);
  else if (sums_slots(product))
    add_slots(product, matrices, workspace.sums.as<std::byte>(), knobs.threads, pool);
  else
    multiply_by_x(product, matrices, sums, knobs.threads, pool);
}

}  // namespace moetune
