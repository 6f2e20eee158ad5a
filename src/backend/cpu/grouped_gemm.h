// The cpu variant: one launch of a blocked, packed, threaded grouped GEMM. Not its innermost loops, nor what is legal.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/matrices.h"
#include "backend/cpu/microkernel.h"
#include "backend/cpu/second_pass.h"
#include "backend/cpu/thread_pool.h"
#include "variant/cpu/cpu.h"

namespace moetune {

/// Memory that launches share, grown by the first that needs more.
struct Workspace {
  std::vector<Buffer> scratch;      // one a thread
  std::vector<int> order;           // experts that have tasks, those with most rows first
  std::vector<int64_t> first_task;  // [order + 1] running sum of tasks in that order
  Partials partials;                // for the second pass
};

/// Runs a legal candidate of the cpu variant on host memory. Tasks are the blocks (expert, n, m) of D, m fastest,
/// experts with most rows first, dealt to threads by a counter; each element is summed by one task in an order that
/// only the candidate's blocks decide, so the result does not depend on the number of threads. What the product adds up
/// over slots or blocks of columns comes after, in a second pass.
void grouped_gemm(const Product& product, const Matrices& matrices, const CpuKnobs& knobs, const Microkernel& kernel,
                  ThreadPool& pool, Workspace& workspace);

}  // namespace moetune
