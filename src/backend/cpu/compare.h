// References: a plain double-precision sum for every element. Comparison of a result with them: every element, rows
// that no launch may write, and guards. Nothing is launched here.
#pragma once
#include <optional>
#include <span>

#include "backend/cpu/memory.h"
#include "backend/cpu/operands.h"
#include "backend/cpu/thread_pool.h"
#include "variant/outcome.h"

namespace moetune {

/// What a launch must write, by result_rows.
struct Reference {
  Buffer d;         // [result_rows of D, N]
  Buffer d_scales;  // floats; of a D that is not quantised: empty
  Buffer second;    // [rows, its columns] of second_result; without it: empty
  Buffer dweights;  // [slots] floats; without the weights' gradient: empty
  // Root mean square that dweights have if the signs of their terms are random: a few may all be small by chance.
  double dweights_rms = 0;
};

/// D in its dtype, with every rounding that the product asks for: what integer inputs must give, bit for bit. The sums
/// are exact. D in memory is not written; where the product accumulates, it contains what is added to.
Reference rounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

/// D in floats, before any rounding to its dtype and not divided by scales: what results of random inputs are compared
/// with. D in memory as above.
Reference unrounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

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
