// The tile in every instruction set that this machine has, and conversions of elements, against scalar ones.
#include "backend/cpu/grouped_gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backend/cpu/operands.h"
#include "base/random.h"
#include "variant/cpu/cpu.h"

namespace moetune {
namespace {

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(Tile, AddsProductsInEveryInstructionSet) {
  static_assert(kCpuTileRows % kTileRows == 0 && kCpuTileColumns % kTileColumns == 0);
  EXPECT_EQ(usable_tiles().front().isa, "generic");
  Random random(4);
  for (const Tile& tile : usable_tiles())
    for (const int64_t depth : {0, 1, 7, 64}) {
      const int64_t pitch = kTileColumns + 2;
      std::vector<float> a(static_cast<size_t>(kTileRows * depth)), b(static_cast<size_t>(kTileColumns * depth));
      for (std::vector<float>* factor : {&a, &b})
        for (float& one : *factor) one = static_cast<float>(random.below(9)) - 4;
      std::vector<float> sums(static_cast<size_t>(kTileRows * pitch), 100);
      tile.add(depth, a.data(), b.data(), sums.data(), pitch);
      for (int64_t row = 0; row < kTileRows; ++row)
        for (int64_t column = 0; column < pitch; ++column) {
          float wanted = 100;
          for (int64_t k = 0; column < kTileColumns && k < depth; ++k)
            wanted += a[k * kTileRows + row] * b[k * kTileColumns + column];
          ASSERT_EQ(sums[row * pitch + column], wanted) << tile.isa << " " << depth << " at " << row << ", " << column;
        }
    }
}

TEST(ToFloats, ConvertsEveryPatternAndNoMore) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> got(all.size() + 1, 99);
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    to_floats(dtype, all.data(), 65536, got.data());
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_TRUE(same(got[i], dtype == Dtype::bf16 ? from_bf16(all[i]) : from_fp16(all[i]))) << name(dtype) << i;
    for (int64_t count = 0; count < 40; ++count) {
      std::fill(got.begin(), got.end(), 99.0F);
      to_floats(dtype, all.data(), count, got.data());
      ASSERT_EQ(got[static_cast<size_t>(count)], 99);
    }
  }
}

TEST(FromFloats, RoundsAsTheDtypeDoesAndNoMore) {
  std::vector<float> values = {0.0F,    -0.0F,       65504.0F,    65519.9F,       65520.0F, -65520.0F,
                               1e30F,   3.4e38F,     6e-8F,       2.9e-8F,        5.96e-8F, 1e-40F,
                               6.1e-5F, 1.00390625F, 1.01171875F, 1.00048828125F, INFINITY, -INFINITY};
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    const auto bits = static_cast<uint32_t>(random.next());
    values.push_back(std::bit_cast<float>(bits));                              // NaN among them
    values.push_back(std::bit_cast<float>(bits & 0xffff8000));                 // many ties in bf16
    values.push_back(std::bit_cast<float>((bits & 0x0ffff000) | 0x38000000));  // many ties in fp16
  }
  const auto count = static_cast<int64_t>(values.size());
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
    std::vector<std::byte> elements(static_cast<size_t>((count + 1) * size_bytes(dtype)), std::byte{77});
    from_floats(dtype, values.data(), count, elements.data());
    EXPECT_EQ(elements.back(), std::byte{77});
    std::vector<float> got(values.size());
    to_floats(dtype, elements.data(), count, got.data());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(same(got[i], round_to(dtype, values[i]))) << name(dtype) << " " << values[i];
  }
}

}  // namespace
}  // namespace moetune
