// Is a result right? Looks at every element, at rows that nobody may write, and at the guards. Does not run anything.
#pragma once
#include <optional>
#include <span>

#include "backend/cpu/output.h"
#include "backend/cpu/thread_pool.h"
#include "variant/outcome.h"
#include "workload/product.h"

namespace moetune {

/// Largest errors that a right result on random inputs can have.
struct Tolerance {
  double normalised_error = 0;
  double ulps = 0;
};
/// Of elements that are sums of `terms` products, at most.
Tolerance tolerance(const Product& product, int64_t terms);

/// Integer inputs: `wanted` [owned_rows of D, N] in D's dtype and expert order; each element must have the same bits.
Verdict compare_exact(const Product& product, const Output& output, const void* wanted, ThreadPool& pool);

/// Random inputs: `wanted` [owned_rows of D, N] floats in expert order, unrounded; errors must be within tolerance.
Verdict compare_close(const Product& product, const Output& output, const float* wanted, ThreadPool& pool);

/// The first byte of D that differs from an earlier copy of it, or nothing.
std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier);

}  // namespace moetune
