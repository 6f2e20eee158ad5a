// Is a result right? Looks at every element, at rows that nobody may write, and at the guards. Does not run anything.
#pragma once
#include <optional>
#include <span>

#include "backend/cpu/operands.h"
#include "backend/cpu/output.h"
#include "backend/cpu/reference.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/tolerance.h"
#include "variant/outcome.h"
#include "workload/product.h"

namespace moetune {

/// Integer inputs: `wanted` [result_rows, columns] in the result's dtype; each element must have the same bits.
Verdict compare_exact(const Product& product, const Operand& result, const Output& output, const void* wanted,
                      ThreadPool& pool);

/// Random inputs: `wanted` [result_rows, columns] floats, unrounded; errors must be within tolerance, relative
/// to the root mean square of the results or, if that is smaller, to `least_rms`.
Verdict compare_close(const Product& product, const Operand& result, const Output& output, const float* wanted,
                      ThreadPool& pool, double least_rms = 0);

/// The same of all that a launch writes. The errors are those of D; of dweights where that alone is wrong.
Verdict compare_exact(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool);
Verdict compare_close(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool);

/// The first byte of D that differs from an earlier copy of it, or nothing.
std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier);

}  // namespace moetune
