// Every instruction set that this machine has does the same as plain loops.
#include "backend/cpu/microkernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/dots.h"
#include "base/random.h"
#include "naive.h"

namespace moetune {
namespace {

constexpr Dtype kDtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};

class EveryIsa : public testing::TestWithParam<Isa> {
 protected:
  const Microkernel& kernel() const { return microkernel(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Microkernel, EveryIsa, testing::ValuesIn(usable_isas()),
                         [](const auto& test) { return std::string(name(test.param)); });

/// Small whole numbers: any order of summation gives the same.
naive::Matrix integers(Dtype dtype, int64_t count, uint64_t seed) {
  naive::Matrix matrix(dtype, count);
  Random random(seed);
  for (int64_t i = 0; i < count; ++i) matrix.set(i, static_cast<float>(random.below(9)) - 4);
  return matrix;
}

std::vector<float> integer_floats(int64_t count, uint64_t seed) {
  const naive::Matrix matrix = integers(Dtype::fp32, count, seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(matrix.get(i));
  return values;
}

/// Floats of every kind: all exponents, ties, subnormals, infinities, NaN.
std::vector<float> awkward_floats() {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               -1.0f,
                               65504.0f,
                               65519.9f,
                               65520.0f,
                               -65520.0f,
                               1e30f,
                               3.4e38f,
                               6e-8f,
                               2.9e-8f,
                               5.96e-8f,
                               6.1e-5f,
                               1e-40f,
                               1.00390625f,
                               1.01171875f,
                               1.00048828125f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    const auto bits = static_cast<uint32_t>(random.next());
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits & 0xffff8000));                 // many ties in bf16
    values.push_back(std::bit_cast<float>((bits & 0x0ffff000) | 0x38000000));  // many ties in fp16
  }
  return values;
}

TEST_P(EveryIsa, HasTilesThatDivideTheSteps) {
  EXPECT_EQ(kernel().isa, GetParam());
  EXPECT_EQ(kCpuTileRows % kernel().tile_rows, 0);
  EXPECT_EQ(kCpuTileColumns % kernel().tile_columns, 0);
  EXPECT_EQ(kCpuPanelRows % kernel().panel_rows, 0);
  EXPECT_EQ(kernel().panel_rows % kernel().tile_rows, 0);
}

TEST_P(EveryIsa, UnpacksEvery16BitPattern) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> got(all.size());
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
    kernel().unpack(dtype, all.data(), 65536, got.data());
    for (size_t i = 0; i < all.size(); ++i) {
      const float wanted = dtype == Dtype::bf16 ? from_bf16(all[i]) : from_fp16(all[i]);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted)) << i;
      }
    }
  }
}

TEST_P(EveryIsa, UnpacksAnyCountAndNoMore) {
  for (const Dtype dtype : kDtypes)
    for (int64_t count = 0; count < 40; ++count) {
      const naive::Matrix source = integers(dtype, count, 1);
      std::vector<float> target(static_cast<size_t>(count) + 1, 99);
      kernel().unpack(dtype, source.bytes.data(), count, target.data());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(target[static_cast<size_t>(i)], source.get(i));
      ASSERT_EQ(target.back(), 99);
    }
}

TEST_P(EveryIsa, StoresWithTheRoundingOfTheDtype) {
  const std::vector<float> values = awkward_floats();
  const auto count = static_cast<int64_t>(values.size());
  for (const Dtype dtype : kDtypes) {
    naive::Matrix got(dtype, count);
    kernel().store(dtype, values.data(), count, nullptr, got.bytes.data());
    for (int64_t i = 0; i < count; ++i) {
      const float wanted = round_to(dtype, values[static_cast<size_t>(i)]);
      if (std::isnan(wanted))
        ASSERT_TRUE(std::isnan(got.get(i))) << name(dtype) << " " << values[static_cast<size_t>(i)];
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(got.get(i)), std::bit_cast<uint32_t>(wanted))
            << name(dtype) << " " << values[static_cast<size_t>(i)];
    }
  }
}

TEST_P(EveryIsa, RoundsTwiceWithAWeight) {
  const std::vector<float> values = awkward_floats();
  const auto count = static_cast<int64_t>(values.size());
  int differ = 0;
  for (const Dtype dtype : kDtypes)
    for (const float factor : {0.3f, 0.7071f}) {
      const float weight = round_to(dtype, factor);
      naive::Matrix got(dtype, count);
      kernel().store(dtype, values.data(), count, &weight, got.bytes.data());
      for (int64_t i = 0; i < count; ++i) {
        const float value = values[static_cast<size_t>(i)];
        const float wanted = round_to(dtype, round_to(dtype, value) * weight);
        if (std::isnan(wanted)) {
          ASSERT_TRUE(std::isnan(got.get(i)));
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got.get(i)), std::bit_cast<uint32_t>(wanted))
              << name(dtype) << " " << value;
          differ += wanted != round_to(dtype, value * weight);
        }
      }
    }
  EXPECT_GT(differ, 100) << "the values cannot tell one rounding from two";
}

TEST_P(EveryIsa, StoresAnyCountAndNoMore) {
  const std::vector<float> sums = integer_floats(40, 1);
  for (const Dtype dtype : kDtypes)
    for (int64_t count = 0; count < 40; ++count) {
      naive::Matrix y(dtype, count + 1);
      y.set(count, 99);
      kernel().store(dtype, sums.data(), count, nullptr, y.bytes.data());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(y.get(i), sums[static_cast<size_t>(i)]);
      ASSERT_EQ(y.get(count), 99);
    }
}

TEST_P(EveryIsa, PacksAnyColumnsAndDepth) {
  const int tile = kernel().tile_columns;
  for (const Dtype dtype : kDtypes)
    for (const int64_t columns : {1, 2, tile / 2, tile / 2 + 1, tile - 1, tile})
      for (const int64_t depth : {1, 3, 15, 16, 17, 33, 64}) {
        const int64_t stride = depth + 5;
        const naive::Matrix w = integers(dtype, (columns - 1) * stride + depth, 2);
        std::vector<float> panel(static_cast<size_t>(depth * tile));
        kernel().pack(dtype, w.bytes.data(), stride, columns, depth, panel.data());
        for (int64_t k = 0; k < depth; ++k)
          for (int64_t c = 0; c < tile; ++c)
            ASSERT_EQ(panel[static_cast<size_t>(k * tile + c)], w.get(std::min(c, columns - 1) * stride + k))
                << name(dtype) << " columns " << columns << " depth " << depth << " at " << k << ", " << c;
      }
}

TEST_P(EveryIsa, SpreadsRowsOverPanels) {
  const std::vector<float> awkward = awkward_floats();
  const float weight = 0.7071F;
  for (const Dtype dtype : kDtypes)
    for (const int width : {kernel().panel_rows, kernel().tile_columns})
      for (const int64_t count : {1, 3, width - 1, width, width + 1, 2 * width + width / 2, 4 * width})
        for (const float* factor : {static_cast<const float*>(nullptr), &weight}) {
          naive::Matrix source(dtype, count);
          for (int64_t i = 0; i < count; ++i) source.set(i, awkward[static_cast<size_t>(i + 40)]);
          const int64_t panels = (count + width - 1) / width, stride = width + 5;
          std::vector<float> target(static_cast<size_t>(panels * stride), 99);
          kernel().spread(dtype, source.bytes.data(), count, factor, width, stride, target.data());
          for (int64_t i = 0; i < panels * stride; ++i) {
            const int64_t value = i / stride * width + i % stride;
            const float element = i % stride < width && value < count ? source.get(value) : 0;
            const float wanted = i % stride >= width ? 99 : factor ? round_to(dtype, element * weight) : element;
            const float got = target[static_cast<size_t>(i)];
            ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted)
                << name(dtype) << " width " << width << " count " << count << " at " << i << ": " << got << ", wanted "
                << wanted;
          }
        }
}

TEST_P(EveryIsa, MultipliesTiles) {
  const int tile = kernel().tile_columns;
  for (int rows = 1; rows <= kernel().tile_rows; ++rows)
    for (const int64_t depth : {1, 2, 7, 64})
      for (const bool across : {false, true}) {
        const int64_t pitch = (across ? kernel().panel_rows : depth) + 3, sums_stride = tile + 2;
        const std::vector<float> data = integer_floats((across ? depth : rows) * pitch, 4);
        const std::vector<float> panel = integer_floats(depth * tile, 5);
        const LeftFactor a = {
            .data = data.data(), .row_stride = across ? 1 : pitch, .depth_stride = across ? pitch : 1};
        std::vector<float> sums(static_cast<size_t>(rows * sums_stride), 100);
        for (const bool add : {false, true}) {
          kernel().tile(rows, depth, a, panel.data(), sums.data(), sums_stride, add);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < sums_stride; ++c) {
              float wanted = 0;
              for (int64_t k = 0; k < depth; ++k)
                wanted +=
                    data[across ? k * pitch + r : r * pitch + k] * panel[k * tile + std::min<int64_t>(c, tile - 1)];
              ASSERT_EQ(sums[r * sums_stride + c], c >= tile ? 100
                                                   : add     ? 2 * wanted
                                                             : wanted)
                  << "rows " << rows << " depth " << depth << " across " << across << " at " << r << ", " << c;
            }
        }
      }
}

TEST_P(EveryIsa, MultipliesFewRowsDirectly) {
  for (const Dtype dtype : kDtypes)
    for (int rows = 1; rows <= kCpuDirectRows; ++rows)
      for (const int64_t columns : {1, 3, 4, 9})
        for (const int64_t depth : {1, 15, 16, 35}) {
          const int64_t x_stride = depth + 3, w_stride = depth + 7, sums_stride = columns + 1;
          const std::vector<float> x = integer_floats(rows * x_stride, 4);
          const naive::Matrix w = integers(dtype, (columns - 1) * w_stride + depth, 5);
          std::vector<float> sums(static_cast<size_t>(rows * sums_stride), 100);
          for (const bool add : {false, true}) {
            kernel().direct(dtype, rows, columns, depth, x.data(), x_stride, w.bytes.data(), w_stride, sums.data(),
                            sums_stride, add);
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t c = 0; c < columns; ++c) {
                float wanted = 0;
                for (int64_t k = 0; k < depth; ++k) wanted += x[r * x_stride + k] * w.get(c * w_stride + k);
                ASSERT_EQ(sums[r * sums_stride + c], add ? 2 * wanted : wanted)
                    << rows << " x " << columns << " x " << depth;
              }
            for (int64_t r = 0; r < rows; ++r) ASSERT_EQ(sums[r * sums_stride + columns], 100);
          }
        }
}

TEST_P(EveryIsa, ReadsEveryFloat) {
  std::vector<float> source(4096, 1);
  EXPECT_EQ(kernel().read(source.data(), 4096), 4096);
  source[4095] = 3;
  EXPECT_EQ(kernel().read(source.data(), 4096), 4098);
}

TEST_P(EveryIsa, FmaLoopStaysFinite) { EXPECT_TRUE(std::isfinite(kernel().fma_loop(100000))); }

TEST(Microkernel, PicksTheBestThatThereIs) {
  EXPECT_EQ(usable_isas().front(), Isa::generic);
  EXPECT_EQ(microkernel().isa, usable_isas().back());
}

TEST(Dots, WidenEvery16BitPattern) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> bf16(all.size()), fp16(all.size());
  dots().widen_bf16(all.data(), 65536, bf16.data());
  dots().widen_fp16(all.data(), 65536, fp16.data());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), uint32_t{all[i]} << 16);
    ASSERT_EQ(std::bit_cast<uint32_t>(fp16[i]), std::bit_cast<uint32_t>(from_fp16(all[i]))) << i;
  }
}

TEST(Dots, SumDoubles) {
  for (const int64_t depth : {1, 7, 16, 37, 100}) {
    std::vector<double> x(static_cast<size_t>(4 * depth)), w(static_cast<size_t>(4 * depth));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<double>(i * 7 % 9) - 4, w[i] = static_cast<double>(i * 5 % 11) - 5;
    const double* x_rows[] = {&x[0], &x[depth], &x[2 * depth], &x[3 * depth]};
    const double* w_rows[] = {&w[0], &w[depth], &w[2 * depth], &w[3 * depth]};
    double sums[Dots::kRows * Dots::kMaxColumns];
    dots().of(x_rows, w_rows, depth, sums);
    for (int r = 0; r < Dots::kRows; ++r)
      for (int c = 0; c < dots().columns; ++c) {
        double wanted = 0;
        for (int64_t k = 0; k < depth; ++k) wanted += x_rows[r][k] * w_rows[c][k];
        ASSERT_EQ(sums[r * dots().columns + c], wanted) << depth;
      }
  }
}

// One of them in a vector, one in what is left over.
TEST(Dots, FewRowsTakeEveryFinitePattern) {
  constexpr int64_t kDepth = 65;
  std::vector<float> x(kDepth);
  x.front() = x.back() = 1;
  std::vector<uint16_t> w(kDepth);
  const float* x_rows[] = {x.data(), x.data(), x.data(), x.data()};
  const auto* row = reinterpret_cast<const std::byte*>(w.data());
  const std::byte* w_rows[] = {row, row, row, row};
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      w.front() = w.back() = static_cast<uint16_t>(bits);
      const float value = dtype == Dtype::bf16 ? from_bf16(w.front()) : from_fp16(w.front());
      if (!std::isfinite(value)) continue;
      float sums[Dots::kRows * Dots::kMaxColumns];
      few(dots(), dtype)(x_rows, w_rows, kDepth, 0, sums);
      for (int i = 0; i < Dots::kRows * dots().columns; ++i) ASSERT_EQ(sums[i], value + value) << bits;
    }
}

TEST(Dots, MultiplyTiles) {
  const int64_t width = dots().tile_columns;
  ASSERT_LE(width, Dots::kMaxTileColumns);
  for (const int64_t depth : {1, 7, 64}) {
    std::vector<float> x(static_cast<size_t>(Dots::kTileRows * depth)), panel(static_cast<size_t>(width * depth));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 9) - 4;
    for (size_t i = 0; i < panel.size(); ++i) panel[i] = static_cast<float>(i * 5 % 11) - 5;
    const float* rows[Dots::kTileRows];
    for (int r = 0; r < Dots::kTileRows; ++r) rows[r] = &x[static_cast<size_t>(r * depth)];
    float sums[Dots::kTileRows * Dots::kMaxTileColumns];
    dots().tile(rows, panel.data(), depth, sums);
    for (int r = 0; r < Dots::kTileRows; ++r)
      for (int64_t c = 0; c < width; ++c) {
        float wanted = 0;
        for (int64_t k = 0; k < depth; ++k) wanted += rows[r][k] * panel[static_cast<size_t>(k * width + c)];
        ASSERT_EQ(sums[r * width + c], wanted) << depth;
      }
  }
}

TEST(Dots, NarrowLikeEverybodyElse) {
  Random random(3);
  std::vector<float> values = {0.0F, -0.0F, 1e-45F, 3.4e38F, INFINITY, -INFINITY, NAN, 1 + 0x1p-8F, 1 + 3 * 0x1p-8F};
  while (values.size() < 20000)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random.below(uint64_t{1} << 32))));
  std::vector<uint16_t> narrow(values.size());
  dots().narrow_bf16(values.data(), static_cast<int64_t>(values.size()), narrow.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(narrow[i], to_bf16(values[i])) << values[i];
}

TEST(Dots, WidenEveryDtype) {
  const std::vector<uint16_t> bf16 = {to_bf16(1.5F), to_bf16(-3)}, fp16 = {to_fp16(1.5F), to_fp16(-3)};
  const std::vector<float> fp32 = {1.5F, -3};
  for (const auto& [dtype, source] : {std::pair<Dtype, const void*>(Dtype::bf16, bf16.data()),
                                      std::pair<Dtype, const void*>(Dtype::fp16, fp16.data()),
                                      std::pair<Dtype, const void*>(Dtype::fp32, fp32.data())}) {
    std::vector<float> target(2);
    widen(dots(), dtype, source, 2, target.data());
    EXPECT_EQ(target, fp32) << name(dtype);
  }
}

}  // namespace
}  // namespace moetune
