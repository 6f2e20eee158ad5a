// The function of the result: what the sums of the product become when they are stored in Y. Here sums are rounded
// alone; every other function is a policy in its own file.
#pragma once
#include "numbers.cuh"
#include "tiles.h"

namespace moetune {

// What every function has:
//   Result   the element of Y
//   columns_per_output    columns of the product that make one of Y. With two, columns 16 i + j and 16 i + 8 + j make
//   column 8 i + j
//            of Y (j < 8): one thread has the sums of both
//   weighs   whether it multiplies rows by their top-k weights
//   Weight   of a row; Weights: of two neighbours in Y, in a row or a column
//   value    an element of Y before its last rounding, from `columns_per_output` sums
//   pair     two neighbours of Y as they are stored, in one register, from `columns_per_output` sums each
template <class Element>
struct Identity {
  using Result = Element;
  static constexpr int columns_per_output = 1;
  static constexpr bool weighs = false;
  using Weight = typename Choice<sizeof(Element) == 2, Element, bf16>::type;  // unused, and short where it is stored
  using Weights = unsigned;
  static __forceinline__ float value(const float* sums, Weight) { return sums[0]; }
  static __forceinline__ unsigned pair(const float* low, const float* high, const Weights&) {
    return pack<Result>(low[0], high[0]);
  }
};

}  // namespace moetune
