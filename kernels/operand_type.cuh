// The type of an operand of the product: its element in memory, the element that the multiplier reads, its scales, and
// how the one becomes the other. New scales and new transforms are policies in files of their own.
#pragma once
#include "args.h"
#include "numbers.cuh"

namespace moetune {

// An operand without scales. What other scales have:
//   at_end       whether they multiply the sums of a tile once, and not those of each stage
//   stage_bytes  in shared memory beside each stage that holds `rows` rows and `columns` columns of the operand
//   Loader       how `threads` threads of wgmma's producer fill these with cp.async: begin() with a tile, whose row r
//                lies in memory row row_at(r), copy() with each of its stages, which begins at column `k`
//   of           the scale of an element: row `row` of memory, column `column`
//   zero         the zero point of an element, of scales that have zero points
struct NoScales {
  static constexpr bool at_end = false;
  static constexpr int stage_bytes(int, int, int = 1) { return 0; }
  template <class Block, int threads>
  struct Loader {
    __forceinline__ void begin(const auto&...) {}
    __forceinline__ void copy(const auto&...) const {}
  };
  static __forceinline__ float of(const auto&, long long, long long) { return 1; }
};

// Elements in memory are those that the multiplier reads. Other transforms make these of a full stage, before the
// multiplier reads it; all threads of the warpgroups that multiply call before_stage(). value() is an element as it
// enters the product, with its scale.
struct SameElement {
  template <class Element>
  using Stage = Element;
  static __forceinline__ void before_stage(const auto& /*group*/, const auto& /*tile*/, int /*stage*/) {}
  template <class Scales>
  static __forceinline__ float value(const Args& args, float element, long long row, long long column) {
    return element * Scales::of(args, row, column);
  }
};

// Integers of fewer bits become elements of `StageElement`, which has them exactly; their scales multiply sums.
template <class StageElement>
struct Widen : SameElement {
  template <class>
  using Stage = StageElement;
};

// The same where scales of groups along k, and zero points, make the stage's elements, rounded once.
template <class StageElement>
struct WidenScaled : Widen<StageElement> {
  template <class Scales>
  static __forceinline__ float value(const Args& args, float element, long long row, long long column) {
    const float centred = element - Scales::zero(args, row, column);
    return to_float(round_to<StageElement>(centred * Scales::of(args, row, column)));
  }
};

template <class Element, class ScalesOf, class TransformOf>
struct OperandType {
  using Memory = Element;
  using Stage = typename TransformOf::template Stage<Element>;
  using Scales = ScalesOf;
  using Transform = TransformOf;
};

}  // namespace moetune
