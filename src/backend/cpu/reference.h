// What the right results are: a plain double-precision sum for every element. Not the comparison.
#pragma once
#include "backend/cpu/matrices.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/thread_pool.h"

namespace moetune {

/// What a launch must write, by result_rows.
struct Reference {
  Buffer d;         // [result_rows of D, N]
  Buffer dweights;  // [slots] floats; without the weights' gradient: empty
  // Root mean square that dweights have if the signs of their terms are random: a few may all be small by chance.
  double dweights_rms = 0;
};

/// D in its dtype, with every rounding that the product asks for: what integer inputs must give, bit for bit. The sums
/// are exact. D in memory is not written; where the product accumulates, it contains what is added to.
Reference rounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

/// D in floats, before any rounding to its dtype: what results of random inputs are compared with. D in memory as
/// above.
Reference unrounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool);

}  // namespace moetune
