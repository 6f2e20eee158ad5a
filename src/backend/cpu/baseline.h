// The baseline "loop": one GEMM per expert, fixed and untuned. A control that no change of the variant can move.
#pragma once
#include "backend/cpu/plain_gemm.h"

namespace moetune {

/// One launch over host memory, on all threads of the pool.
void loop_baseline(const Args& args, const Shape& shape, ThreadPool& pool, PlainWorkspace<float>& workspace);

}  // namespace moetune
