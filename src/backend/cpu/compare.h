// Is a result right? Looks at every element, at rows that nobody may write, and at the guards. Does not run anything.
#pragma once
#include <optional>
#include <span>

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

/// The first byte of Y that differs from an earlier copy of it, or nothing.
std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier);

}  // namespace moetune
