// W of 4 bits in the order of registers: how a block becomes the register operand of wgmma or mma, and the bits of its
// elements and scales. reordered.h says where all lies.
#pragma once
#include "operand_type.cuh"
#include "reordered.h"
#include "scales.cuh"

namespace moetune {

// Elements of a W that is reordered.
template <class Element>
struct Reordered;

// Word `j` of thread t has eight elements: t's of 16 rows and 16 columns, from row 16 (t / 32) and column 16 j on. Its
// register i has rows t % 32 / 4 + 8 (i % 2) there, columns 2 (t % 4) + 8 (i / 2) and the next, one in each half. Of a
// half of the word register i has bits `shift` and up and, of e2m1, the bit of the sign.
constexpr int reordered_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8; }
constexpr int reordered_column(int thread, int j, int i, int half) {
  return j * 16 + thread % 4 * 2 + i / 2 * 8 + half;
}
// The two rows of a thread's scales are those of its pair: [pairs][groups][2 rows] of 16 bits, [pairs][2 rows][groups]
// of bytes. In a register the first row's is the low half.
constexpr int reordered_pair(int thread) { return thread / 32 * 8 + thread % 32 / 4; }
constexpr int reordered_place(int bytes, int groups, int group, int row) {
  return bytes == 1 ? row * groups + group : group * 2 + row;
}
// Byte `group` of each half of `bytes`, or, of one group, of each byte.
template <int groups>
__forceinline__ unsigned bytes_of_rows(unsigned bytes, int group) {
  if constexpr (groups == 1) return __byte_perm(bytes, 0, 0x4140);
  return bytes >> 8 * group & 0x00ff00ffu;
}

// Bits of integers, and what makes their registers two neighbours less their zero points.
template <class Element>
struct ReorderedBits {
  static constexpr unsigned zero = 8;
  static __forceinline__ unsigned place(unsigned nibble, int i) { return nibble << 4 * i; }
  // 2^7 or 2^10 and the integer, whose bits are the lowest of the fraction; less as much and the zero point.
  template <class Stage, int i>
  static __forceinline__ unsigned take(unsigned word, unsigned less) {
    const unsigned pair = word >> 4 * i & 0x000f000fu | (is_bf16<Stage> ? 0x43004300u : 0x64006400u);
    return add_half<Stage, i % 2>(pair, less);
  }
  // -(2^7 + zero point) or -(2^10 + zero point) of both rows.
  template <class Stage>
  static __forceinline__ unsigned less(unsigned zeros) {
    return zeros | (is_bf16<Stage> ? 0xc300c300u : 0xe400e400u);
  }
};

// e2m1's magnitude goes to the lowest bits of the exponent and the highest of the fraction: as bf16 that is its value
// times 2^-126, as fp16 times 2^-14.
template <>
struct ReorderedBits<e2m1> {
  static constexpr unsigned zero = 0;
  static constexpr int sign(int i) { return i == 0 ? 13 : i == 1 ? 12 : i == 2 ? 15 : 14; }
  static __forceinline__ unsigned place(unsigned nibble, int i) {
    return (nibble & 7) << 3 * i | nibble >> 3 << sign(i);
  }
  template <int by>
  static __forceinline__ unsigned left(unsigned word) {
    return by < 0 ? word >> -by : word << by;
  }
  template <class Stage, int i>
  static __forceinline__ unsigned take(unsigned word, unsigned) {
    constexpr int to = is_bf16<Stage> ? 6 : 9;  // of the magnitude's lowest bit
    return left<to - 3 * i>(word) & 0x00070007u << to | left<15 - sign(i)>(word) & 0x80008000u;
  }
  template <class Stage>
  static __forceinline__ unsigned less(unsigned) {
    return 0;
  }
};

// A scale in a block, and the factors of what ReorderedBits gives, of both rows. Scales of 16 bits lie as they are.
template <class Scale, class Stage>
struct ReorderedScale {
  static constexpr bool legal(Scale) { return true; }
  static __forceinline__ unsigned short place(Scale scale) { return scale.bits; }
  template <int groups>
  static __forceinline__ unsigned take(const unsigned* scales, int group) {
    return scales[group];
  }
};
// Those of mxfp4 lie as the exponent, in fp32 or bf16, of half of them, which makes up for 2^-126 or 2^-14: up to 2.
template <class Stage>
struct ReorderedScale<e8m0, Stage> {
  static __forceinline__ bool legal(e8m0 scale) { return scale.bits <= 128; }
  static __forceinline__ unsigned char place(e8m0 scale) { return static_cast<unsigned char>(scale.bits + 126); }
  template <int groups>
  static __forceinline__ unsigned take(const unsigned* scales, int group) {
    static_assert(groups == 2, "a scale covers 32 columns");
    if constexpr (is_bf16<Stage>) return (group == 0 ? scales[0] << 7 : scales[0] >> 1) & 0x7f807f80u;
    const unsigned bytes = bytes_of_rows<groups>(scales[0], group);
    return pack<Stage>(__uint_as_float(((bytes & 255) - 112) << 23), __uint_as_float(((bytes >> 16) - 112) << 23));
  }
};

template <class Type>
struct RegisterW;
template <class Element, int columns, class Scale, bool zero_points, class StageElement>
struct RegisterW<
    OperandType<Reordered<Element>, GroupScalesOfW<columns, Scale, zero_points>, WidenScaled<StageElement>>> {
  using Stage = StageElement;
  using ScaleElement = Scale;
  static constexpr int group_columns = columns;
  static constexpr bool has_zeros = zero_points;
  using Bits = ReorderedBits<Element>;
  using ScaleBits = ReorderedScale<Scale, Stage>;
  static constexpr int groups = reordered_groups(columns), steps = kReorderedColumns / 16;
  static constexpr int scales_at = kReorderedRows * kReorderedColumns / 2;
  static constexpr int zeros_at = scales_at + kReorderedRows * groups * static_cast<int>(sizeof(Scale));
  static constexpr int bytes = reordered_bytes(columns, sizeof(Scale), zero_points);
  static constexpr unsigned outside = Bits::zero;  // an element past the end, and its zero point
  static constexpr int scale_words = 2 * groups * static_cast<int>(sizeof(Scale)) / 4;

  // A thread's part of a block, as it lies in memory.
  struct Packed {
    uint4 words;
    unsigned scales[scale_words];
    unsigned zeros;
  };
  // Where it lies in the first block, in shared memory. `at` is from there to another block.
  struct Places {
    unsigned words, scales, zeros;
  };
  static __forceinline__ Places places(unsigned block, int thread) {
    const int pair = reordered_pair(thread);
    return {block + thread * 16, block + scales_at + pair * scale_words * 4, block + zeros_at + pair * 2 * groups};
  }
  static __forceinline__ Packed read(const Places& places, unsigned at) {
    Packed packed;
    load_shared(packed.words, places.words + at);
    if constexpr (scale_words == 2)
      load_shared(packed.scales[0], packed.scales[1], places.scales + at);
    else
      load_shared(packed.scales[0], places.scales + at);
    if constexpr (zero_points && groups == 2)
      load_shared(packed.zeros, places.zeros + at);
    else if constexpr (zero_points)
      load_shared_half(packed.zeros, places.zeros + at);
    return packed;
  }

  // Registers of the step `j` along k, of 16 columns.
  template <int j>
  static __forceinline__ void unpack(const Packed& packed, unsigned (&a)[4]) {
    const unsigned word = j == 0 ? packed.words.x : j == 1 ? packed.words.y : j == 2 ? packed.words.z : packed.words.w;
    constexpr int group = j * groups / steps;
    const unsigned factors = ScaleBits::template take<groups>(packed.scales, group);
    const unsigned less = zero_points ? Bits::template less<Stage>(bytes_of_rows<groups>(packed.zeros, group))
                                      : Bits::template less<Stage>(0x00080008u);
    a[0] = multiply_half<Stage, 0>(Bits::template take<Stage, 0>(word, less), factors);
    a[1] = multiply_half<Stage, 1>(Bits::template take<Stage, 1>(word, less), factors);
    a[2] = multiply_half<Stage, 0>(Bits::template take<Stage, 2>(word, less), factors);
    a[3] = multiply_half<Stage, 1>(Bits::template take<Stage, 3>(word, less), factors);
  }
};

}  // namespace moetune
