// What the cpu variant does after all tasks: adds up sums of which each task has only a part.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/matrices.h"
#include "backend/cpu/microkernel.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// What tasks leave, in memory that launches share. Rows in expert order.
struct Partials {
  Buffer sums;                         // [rows, N] floats, where the product sums slots
  Buffer dots;                         // [rows, blocks of N] floats, with the weights' gradient
  std::vector<int32_t> rows_of_slots;  // [slots] see rows_of_slots()
};

/// Makes room for a product whose rows are cut into `blocks` blocks of columns; nothing for one without such sums.
void prepare(const Product& product, int64_t blocks, Partials& partials);

/// Sum of `count` sums times as many elements of X, in an order that only `count` decides.
float dot(const Microkernel& kernel, Dtype dtype, const float* sums, const std::byte* x, int64_t count);

/// The second pass, on `threads` threads: D from `sums`, in the order of slots, and dweights from `dots`, in the order
/// of blocks; zeros where there is nothing to add.
void add_up(const Product& product, const Matrices& matrices, int64_t blocks, const Partials& partials,
            const Microkernel& kernel, int threads, ThreadPool& pool);

}  // namespace moetune
