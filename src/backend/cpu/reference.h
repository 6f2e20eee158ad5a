// What the right results are: a plain double-precision sum for every element. Not the comparison.
#pragma once
#include "backend/cpu/buffer.h"
#include "backend/cpu/matrices.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// [owned_rows of D, N] elements of D's dtype in expert order, with every rounding that the product asks for: what
/// integer inputs must give, bit for bit. The sums are exact. D in memory is not written; where the
/// product accumulates, it holds what is added to.
Buffer rounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

/// [owned_rows of D, N] floats in expert order, before any rounding to D's dtype: what random inputs are held against.
/// D as above.
Buffer unrounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

}  // namespace moetune
