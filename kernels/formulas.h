// Formulas of kernels and host: activations, the scales of a quantised result, and the values of test operands. Both
// compilers read this.
#pragma once

namespace moetune {

/// What makes a column of the result of a gate and an up.
///   silu     gate / (1 + exp(-gate)) * up
///   gelu     gate * (1 + erf(gate / sqrt(2))) / 2 * up, as torch's default
///   gpt_oss  gate / (1 + exp(-kGptOssSlope * gate)) * (up + 1), gate at most kGptOssLimit and up within +-kGptOssLimit
enum class Activation { none, silu, gelu, gpt_oss };
constexpr double kGptOssSlope = 1.702, kGptOssLimit = 7;
constexpr double kRootOfHalf = 0.70710678118654752, kInverseRootOf2Pi = 0.39894228040143268;

/// The scale of a quantised result's columns is their largest magnitude, kMinLargest at least, / kMaxFp8.
constexpr float kMaxFp8 = 448, kMinLargest = 1e-10f;

/// What fills an operand, its scales or the top-k weights, each value from 32 bits of a hash.
///   integers        (bits >> 8) % (2 * most + 1) - most: in [-most, most], so that products sum exactly in fp32
///   random          ((sum of the four bytes - 510) * 512 + 2 * fine - 255) * sqrt(3) / 2^17, where fine is the high
///                   byte of bits * 0x9e3779b1: about normal, standard deviation 1, with every bit of a mantissa in
///                   use, because a GPU's power and clock depend on which bits change
///   weights         ((bits >> 8) + 0.5) / 2^24: in (0, 1]
///   quarters        a weight rounded up to quarters
///   integer_scales  1/2, 1 or 2
///   scales          a weight + 0.5; int8_scales: the same / 32
enum class Filling { integers, random, weights, quarters, integer_scales, scales, int8_scales };
/// What random values of integers are multiplied by, so that they are spread over their range.
constexpr float kSpreadOfInt8 = 32, kSpreadOfNibbles = 3;

constexpr float filled_value(Filling filling, unsigned bits, int most) {
  if (filling == Filling::integers)
    return static_cast<float>(static_cast<int>((bits >> 8) % (2u * static_cast<unsigned>(most) + 1u)) - most);
  if (filling == Filling::random) {
    const unsigned sum = (bits & 255u) + ((bits >> 8) & 255u) + ((bits >> 16) & 255u) + (bits >> 24);
    const unsigned fine = (bits * 0x9e3779b1u) >> 24;
    return static_cast<float>((static_cast<int>(sum) - 510) * 512 + 2 * static_cast<int>(fine) - 255) * 1.32144990e-05f;
  }
  const float weight = (static_cast<float>(bits >> 8) + 0.5f) * 5.9604644775390625e-08f;
  if (filling == Filling::quarters) {
    const int below = static_cast<int>(4 * weight);
    return static_cast<float>(static_cast<float>(below) < 4 * weight ? below + 1 : below) / 4;
  }
  if (filling == Filling::integer_scales) return weight <= 1.0f / 3 ? 0.5f : weight <= 2.0f / 3 ? 1.0f : 2.0f;
  if (filling == Filling::scales) return weight + 0.5f;
  return filling == Filling::int8_scales ? (weight + 0.5f) / 32 : weight;
}

}  // namespace moetune
