// The baseline "loop": one GEMM per expert, fixed and untuned. A control: no change of the variant changes its time,
// but the machine's state does, about as much as the variant's, because it reads operands and divides work like the
// variant.
#pragma once
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/matrices.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// Memory that launches share.
struct LoopWorkspace {
  std::vector<Buffer> memory;  // one a thread: what it has of A and B as floats
  std::vector<int> order;      // experts, most rows first
  Buffer sums;                 // [rows, N] floats in expert order, where the product sums slots
  Buffer dots;                 // [rows, strips of N] floats in expert order, with the weights' gradient
};

/// One launch over host memory, on all threads of the pool.
void loop_baseline(const Product& product, const Matrices& matrices, ThreadPool& pool, LoopWorkspace& workspace);

}  // namespace moetune
