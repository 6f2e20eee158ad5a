// Roundings against arithmetic in double, for every 16-bit value and its midpoints.
#include "workload/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "error_of.h"

namespace moetune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The two 16-bit formats, for tests of both.
struct Half {
  uint16_t (*to)(float);
  float (*from)(uint16_t);
  uint16_t infinity;
};
constexpr Half kBf16{to_bf16, from_bf16, 0x7f80}, kFp16{to_fp16, from_fp16, 0x7c00};

void expect_round_trips(const Half& half) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = half.from(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(half.from(half.to(value)))) << bits;
    else
      ASSERT_EQ(half.to(value), bits);
  }
}

// Between neighbours: the midpoint goes to the even one, what is beside it to the nearer one.
void expect_nearest_even(const Half& half) {
  for (uint32_t bits = 0; bits + 1 < half.infinity; ++bits) {
    const double low = half.from(static_cast<uint16_t>(bits)), high = half.from(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);  // exact: one bit more
    ASSERT_EQ(half.to(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(half.to(std::nextafter(middle, kInfinity)), bits + 1) << bits;
    ASSERT_EQ(half.to(std::nextafter(middle, -kInfinity)), bits) << bits;
    ASSERT_EQ(half.to(-middle), 0x8000 | (bits % 2 == 0 ? bits : bits + 1)) << bits;
  }
}

TEST(Bf16, EveryValueRoundTrips) { expect_round_trips(kBf16); }
TEST(Fp16, EveryValueRoundTrips) { expect_round_trips(kFp16); }
TEST(Bf16, RoundsToNearestEvenEverywhere) { expect_nearest_even(kBf16); }
TEST(Fp16, RoundsToNearestEvenEverywhereSubnormalsIncluded) { expect_nearest_even(kFp16); }

TEST(Fp8, EveryValueRoundTrips) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const float value = from_fp8(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(value) && (to_fp8(value) & 0x7f) == 0x7f) << bits;
    else
      EXPECT_EQ(to_fp8(value), bits);
  }
}
TEST(Fp8, RoundsToNearestEvenEverywhereSubnormalsIncluded) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const float low = from_fp8(static_cast<uint8_t>(bits)), high = from_fp8(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_fp8(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(to_fp8(std::nextafter(middle, kInfinity)), bits + 1) << bits;
    EXPECT_EQ(to_fp8(std::nextafter(middle, -kInfinity)), bits) << bits;
    EXPECT_EQ(to_fp8(-middle), 0x80 | (bits % 2 == 0 ? bits : bits + 1)) << bits;
  }
}
TEST(Fp8, StaysAtTheLargestValueBeyondIt) {
  EXPECT_EQ(from_fp8(0x7e), 448);
  EXPECT_EQ(from_fp8(0x01), 0x1p-9f);
  EXPECT_EQ(from_fp8(0x08), 0x1p-6f);
  for (const float value : {449.0f, 1e30f, kInfinity}) EXPECT_EQ(to_fp8(value), 0x7e) << value;
  EXPECT_EQ(to_fp8(-kInfinity), 0xfe);
  EXPECT_EQ(round_to(Dtype::fp8, 0x1p-11f), 0);
}

TEST(Bf16, OverflowsToInfinity) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity), 0xff80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);  // just under the last midpoint
}
TEST(Fp16, OverflowsAtTheMidpointBeyondTheLargest) {
  EXPECT_EQ(to_fp16(65504), 0x7bff);
  EXPECT_EQ(to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(to_fp16(65520), 0x7c00);
  EXPECT_EQ(to_fp16(-1e30f), 0xfc00);
}
TEST(Fp16, UnderflowsToSignedZero) {
  EXPECT_EQ(to_fp16(0x1p-25f), 0);  // half of the smallest: to even
  EXPECT_EQ(to_fp16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(to_fp16(-1e-30f), 0x8000);
  EXPECT_EQ(to_fp16(std::numeric_limits<float>::denorm_min()), 0);
}
TEST(Halves, KeepNanWhateverItsPayload) {
  for (const uint32_t payload : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7fc00000u}) {
    const float nan = std::bit_cast<float>(payload);
    EXPECT_TRUE(std::isnan(from_bf16(to_bf16(nan))));
    EXPECT_TRUE(std::isnan(from_fp16(to_fp16(nan))));
  }
}
TEST(RoundTo, KeepsFp32AndRoundsTheOthers) {
  EXPECT_EQ(round_to(Dtype::fp32, 0.1f), 0.1f);
  EXPECT_EQ(round_to(Dtype::bf16, 0.1f), 0.10009765625f);
  EXPECT_EQ(round_to(Dtype::fp16, 0.1f), 0.0999755859375f);
  EXPECT_TRUE(std::isnan(round_to(Dtype::bf16, kNan)));
}
TEST(RoundTo, KeepsTheSignificantBits) {
  Random random(1);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32})
    for (int i = 0; i < 1000; ++i) {
      const float value = static_cast<float>(1 + random.uniform());
      const double error = std::abs(round_to(dtype, value) - value);
      EXPECT_LE(error, std::ldexp(1, -significand_bits(dtype)));  // half a unit in the last place of [1, 2)
    }
}

TEST(E2m1, RoundsToNearestEvenAndSaturates) {
  const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int nibble = 0; nibble < 16; ++nibble) {
    const float value = (nibble & 8 ? -1.0f : 1.0f) * values[nibble & 7];
    EXPECT_EQ(from_nibble(Dtype::e2m1, nibble), value);
    EXPECT_EQ(to_nibble(Dtype::e2m1, value), nibble);
    EXPECT_EQ(std::signbit(from_nibble(Dtype::e2m1, nibble)), nibble >= 8);  // of zero too
  }
  const std::pair<float, float> rounded[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},      {2.5f, 2},
                                             {3.5f, 4},  {5, 4},     {5.01f, 6}, {-0.26f, -0.5f}, {1e9f, 6}};
  for (const auto& [value, nearest] : rounded) EXPECT_EQ(round_to(Dtype::e2m1, value), nearest) << value;
}
TEST(E8m0, IsAPowerOfTwo) {
  for (int bits = 0; bits < 255; ++bits) {
    EXPECT_EQ(from_e8m0(static_cast<uint8_t>(bits)), std::ldexp(1.0f, bits - 127)) << bits;
    if (bits > 0) {
      EXPECT_EQ(to_e8m0(std::ldexp(1.5f, bits - 127)), bits);
    }
  }
  EXPECT_TRUE(std::isnan(from_e8m0(255)));
}

TEST(DtypeNames, ParseBackAndHaveSizes) {
  for (const char* word : {"bf16", "fp16", "fp32", "fp8", "int8", "int4", "uint4", "e2m1", "e8m0"})
    EXPECT_EQ(name(parse_dtype(word)), word);
  EXPECT_EQ(size_bytes(Dtype::bf16), 2);
  EXPECT_EQ(size_bytes(Dtype::fp16), 2);
  EXPECT_EQ(size_bytes(Dtype::fp32), 4);
  EXPECT_EQ(size_bytes(Dtype::fp8), 1);
  EXPECT_EQ(bits(Dtype::uint4), 4);
  EXPECT_EQ(round_to(Dtype::int8, 200), 127);
  EXPECT_EQ(round_to(Dtype::int4, -2.5f), -2);
}
TEST(DtypeNames, SuggestTheNearest) {
  const Caught error = error_of([] { parse_dtype("bf61"); });
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what, "unknown dtype 'bf61'");
  EXPECT_EQ(error.hint, "did you mean 'bf16'?");
}

}  // namespace
}  // namespace moetune
