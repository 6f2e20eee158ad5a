// The type of an operand of the product: its element in memory, the element that the multiplier reads, its scales, and
// how the one becomes the other. New scales and new transforms are policies in files of their own.
#pragma once

namespace moetune {

// An operand without scales. What other scales have:
//   stage_bytes  in shared memory beside each stage that holds `rows` rows of the operand
//   Loader       how wgmma's loader fills these: issue() by the one thread that issues tensor copies (what it copies
//                arrives at the stage's full barrier, which expects stage_bytes more), copy() by all threads that copy
//                rows with cp.async
//   scaled       an element times its scale: row `row` of memory, column `column`
struct NoScales {
  static constexpr int stage_bytes(int) { return 0; }
  template <class Block>
  struct Loader {
    __forceinline__ void begin(const Block&, const typename Block::Tile&) {}
    __forceinline__ void issue(const Block&, const typename Block::Tile&, int /*stage*/, int /*k*/) const {}
    __forceinline__ void copy(const Block&, const typename Block::Tile&, int /*stage*/, int /*k*/) const {}
  };
  static __forceinline__ float scaled(const auto&, float value, long long, long long) { return value; }
};

// Elements in memory are those that the multiplier reads. Other transforms make these of a full stage, before the
// multiplier reads it; all threads of the warpgroups that multiply call before_stage().
struct SameElement {
  template <class Element>
  using Stage = Element;
  static __forceinline__ void before_stage(const auto& /*group*/, const auto& /*tile*/, int /*stage*/) {}
};

template <class Element, class ScalesOf, class TransformOf>
struct OperandType {
  using Memory = Element;
  using Stage = typename TransformOf::template Stage<Element>;
  using Scales = ScalesOf;
  using Transform = TransformOf;
};

}  // namespace moetune
