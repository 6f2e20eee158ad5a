// Is a result right? Looks at every element, at rows that nobody may write, and at the guards. Does not run anything.
#pragma once
#include "backend/cpu/output.h"
#include "backend/cpu/thread_pool.h"
#include "variant/outcome.h"
#include "workload/problem.h"

namespace moetune {

/// Largest errors that a right result on random inputs can have.
struct Tolerance {
  double normalised_error = 0;
  double ulps = 0;
};
Tolerance tolerance(const Shape& shape);

/// Integer inputs: `wanted` [rows, n] in the dtype and expert order; each element must have the same bits.
Verdict compare_exact(const Problem& problem, const Output& output, const void* wanted, ThreadPool& pool);

/// Random inputs: `wanted` [rows, n] floats in expert order, unrounded; errors must be within tolerance.
Verdict compare_close(const Problem& problem, const Output& output, const float* wanted, ThreadPool& pool);

}  // namespace moetune
