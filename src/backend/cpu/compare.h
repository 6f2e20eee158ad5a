// Is a result right? Looks at every element, at rows that nobody may write, and at the guards. Does not run anything.
#pragma once
#include <optional>
#include <span>

#include "backend/cpu/operands.h"
#include "backend/cpu/reference.h"
#include "variant/outcome.h"

namespace moetune {

/// Largest errors that a right result on random inputs can have.
struct Tolerance {
  double normalised_error = 0;
  double ulps = 0;
};
/// Of elements of a result whose errors add up from `terms` products (see result_terms), at most.
Tolerance tolerance(const Product& product, const Operand& result, int64_t terms);

/// Integer inputs: each element of all that a launch writes must have the same bits as the rounded reference. Random
/// inputs: errors from the unrounded reference must be within tolerance, relative to the root mean square of the
/// results. A verdict's errors are those of D; of dweights where that alone is wrong.
Verdict compare_exact(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool);
Verdict compare_close(const Product& product, const OperandSet& set, const Reference& wanted, ThreadPool& pool);

/// The first byte of D that differs from an earlier copy of it, or nothing.
std::optional<int64_t> first_difference(const Output& output, std::span<const std::byte> earlier);

}  // namespace moetune
