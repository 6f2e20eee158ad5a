// The baseline "loop": one GEMM per expert, decent, fixed and untuned. A control that no change of the variant can
// move, and that the machine's moods move about as far as they move the variant: it reads and hands over work like one.
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
