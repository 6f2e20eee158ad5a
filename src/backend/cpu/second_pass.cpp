// Every row of a result is added up by one thread.
#include "backend/cpu/second_pass.h"

#include <algorithm>

#include "workload/result.h"

namespace moetune {
namespace {

constexpr int64_t kPassColumns = 512;  // of a token's row at a time
constexpr int64_t kSlots = 1024;       // at a time
constexpr int64_t kLanes = 16;         // of a dot product

void grow_floats(Buffer& buffer, int64_t floats) {
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  if (buffer.bytes() < bytes) buffer = Buffer(bytes);
}

/// Columns [column, column + count) of D's row of a token.
void add_slots(const Product& product, const Matrices& matrices, const Partials& partials, const Microkernel& kernel,
               int64_t token, int64_t column, int64_t count) {
  float total[kPassColumns] = {};
  for (int64_t slot = token * product.top_k; slot < (token + 1) * product.top_k; ++slot) {
    const int32_t row = partials.rows_of_slots[static_cast<size_t>(slot)];
    if (row < 0) continue;
    const float* sums = partials.sums.as<float>() + row * product.n + column;
    for (int64_t c = 0; c < count; ++c) total[c] += sums[c];
  }
  const int64_t at = (token * product.d.columns + column) * size_bytes(product.d.type.dtype);
  kernel.store(product.d.type.dtype, total, count, nullptr, static_cast<std::byte*>(matrices.d) + at);
}

float add_dots(const Partials& partials, int64_t blocks, int64_t slot) {
  const int32_t row = partials.rows_of_slots[static_cast<size_t>(slot)];
  if (row < 0) return 0;
  const float* dots = partials.dots.as<float>() + row * blocks;
  float total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += dots[block];
  return total;
}

}  // namespace

void prepare(const Product& product, int64_t blocks, Partials& partials) {
  if (!sums_slots(product) && !product.weight_gradient) return;
  if (sums_slots(product)) grow_floats(partials.sums, routed_rows(product) * product.n);
  if (product.weight_gradient) grow_floats(partials.dots, routed_rows(product) * blocks);
  partials.rows_of_slots = rows_of_slots(product);
}

float dot(const Microkernel& kernel, Dtype dtype, const float* sums, const std::byte* x, int64_t count) {
  constexpr int64_t kTogether = 256;
  static_assert(kTogether % kLanes == 0);
  float lanes[kLanes] = {}, piece[kTogether];
  for (int64_t from = 0; from < count; from += kTogether) {
    const int64_t width = std::min(kTogether, count - from);
    kernel.unpack(dtype, x + from * size_bytes(dtype), width, piece);
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += sums[from + i + lane] * piece[i + lane];
    for (int64_t lane = 0; i < width; ++i, ++lane) lanes[lane] += sums[from + i] * piece[i];
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

void add_up(const Product& product, const Matrices& matrices, int64_t blocks, const Partials& partials,
            const Microkernel& kernel, int threads, ThreadPool& pool) {
  if (sums_slots(product)) {
    const int64_t pieces = (product.n + kPassColumns - 1) / kPassColumns;
    pool.for_each(threads, product.d.rows * pieces, [&](int, int64_t i) {
      const int64_t column = i % pieces * kPassColumns;
      add_slots(product, matrices, partials, kernel, i / pieces, column, std::min(kPassColumns, product.n - column));
    });
  }
  if (product.weight_gradient)
    pool.for_each(threads, (product.slots + kSlots - 1) / kSlots, [&](int, int64_t i) {
      for (int64_t slot = i * kSlots; slot < std::min(product.slots, (i + 1) * kSlots); ++slot)
        matrices.dweights[slot] = add_dots(partials, blocks, slot);
    });
}

}  // namespace moetune
