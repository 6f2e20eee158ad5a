// What the right results are: a plain double-precision sum for every element. Not the comparison.
#pragma once
#include "backend/cpu/buffer.h"
#include "backend/cpu/thread_pool.h"
#include "kernels/args.h"
#include "workload/shape.h"

namespace moetune {

/// [rows, n] elements of the dtype in expert order, with every rounding that the fusions ask for: what integer inputs
/// must give, bit for bit. The sums are exact.
Buffer rounded_reference(const Args& args, const Shape& shape, ThreadPool& pool);

/// [rows, n] floats in expert order, before any rounding to the dtype: what random inputs are held against.
Buffer unrounded_reference(const Args& args, const Shape& shape, ThreadPool& pool);

}  // namespace moetune
