// Results in fp8 with scales of 1x128 against three loops, and faults planted into right ones.
#include <gtest/gtest.h>

#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;

const Extras kBlocks = {.a_scale = block_scales(1, 128), .b_scale = block_scales(128, 128)};
constexpr int64_t kColumns = 160;  // of Y: a whole block of columns and a part of one

Problem quantised(const Fusion& fusion, int64_t ep = 1) {
  const Setting setting{.fusion = fusion, .n = 2 * kColumns, .k = 200, .ep = ep};
  Problem problem = ep == 1 ? problem_of_rows({7, 0, 20, 21}, setting, 2) : problem_of("uniform", 12, 8, 2, setting);
  Layer& layer = problem.shape.layer;
  layer.format = format_named("fp8-block-fp8");
  return problem;
}

struct Quantised : Multiplication {
  Quantised(const Problem& problem, Values values) : Multiplication(problem, values, kBlocks) {
    run(candidate(24, 64, 64, 2));
  }
  float& scale(int64_t row, int64_t block) { return reinterpret_cast<float*>(set.d_scales.data())[row * 2 + block]; }
  double most(int64_t row, int64_t first, int64_t end) {
    double found = 0;
    for (int64_t column = first; column < end; ++column)
      found = std::max(found, std::abs(wanted.at(row, column).exact));
    return found;
  }
  Verdict verdict() { return set.values == Values::integer ? exact() : close(); }
};

TEST(Quantised, EqualsThreeLoops) {
  for (const Fusion& fusion : {Fusion{.permute_x = true, .activation = Activation::silu},
                               Fusion{.activation = Activation::gelu, .interleaved = true},
                               Fusion{.by_slot = true, .activation = Activation::gpt_oss}})
    for (const Values values : {Values::integer, Values::random}) {
      SCOPED_TRACE(text(fusion));
      Quantised m(quantised(fusion), values);
      for (int64_t row = 0; row < 48; ++row)
        for (int64_t column = 0; column < kColumns; ++column) {
          const int64_t block = column / 128;
          const double scale = m.most(row, block * 128, std::min(kColumns, block * 128 + 128)) / 448;
          ASSERT_NEAR(static_cast<double>(m.scale(row, block)), scale, 2e-5 * scale);
          const double value = m.wanted.at(row, column).exact, ulp = std::max(0x1p-9, std::abs(value) / scale / 8);
          ASSERT_NEAR(static_cast<double>(m.element(row, column)), value / scale, 0.51 * ulp + 0.02)
              << row << ", " << column;
        }
      EXPECT_TRUE(m.verdict().ok) << m.verdict().reason;
    }
}

TEST(Quantised, RowsOfZerosHaveASmallScale) {
  Quantised m(quantised({.activation = Activation::silu}), Values::random);
  std::memset(m.set.a.data(), 0, static_cast<size_t>(m.set.a.bytes()));
  m.run(candidate(24, 64, 64, 2));
  EXPECT_EQ(m.scale(5, 1), kMinLargest / kMaxFp8);
  EXPECT_EQ(m.element(5, 130), 0);
}

// Both kinds of values: the fault is seen, and described by these words.
template <class Spoil>
void expect_caught(const std::string& words, Spoil spoil,
                   const Problem& problem = quantised({.activation = Activation::silu})) {
  for (const Values values : {Values::integer, Values::random}) {
    Quantised m(problem, values);
    ASSERT_TRUE(m.verdict().ok) << m.verdict().reason;
    spoil(m);
    const Verdict found = m.verdict();
    EXPECT_FALSE(found.ok) << words;
    EXPECT_NE(found.reason.find(words), std::string::npos) << words << " is not in: " << found.reason;
  }
}

TEST(Quantised, SeesScalesOfANeighbour) {
  expect_caught("elements", [](Quantised& m) {
    std::memcpy(m.at(3, 0), m.at(4, 0), kColumns);  // or the elements would show it
    m.scale(3, 0) = m.scale(4, 0), m.scale(3, 1) = m.scale(4, 1);
    for (int64_t column = 0; column < kColumns; ++column)
      m.put(3, column,
            static_cast<float>(m.wanted.at(3, column).exact / static_cast<double>(m.scale(3, column / 128))));
  });
  expect_caught("column 0", [](Quantised& m) { m.scale(9, 0) = m.scale(9, 1); });
  expect_caught("expert 2, row 2, column 1", [](Quantised& m) {
    m.scale(9, 1) *= 1.01F;
    for (int64_t column = 128; column < kColumns; ++column)
      m.put(9, column, static_cast<float>(m.wanted.at(9, column).exact / static_cast<double>(m.scale(9, 1))));
  });
}

TEST(Quantised, SeesALargestValueOfHalfTheColumns) {
  expect_caught("elements", [](Quantised& m) {
    int64_t row = 0;
    while (m.most(row, 0, 64) > 0.9 * m.most(row, 64, 128)) ++row;
    m.scale(row, 0) = static_cast<float>(m.most(row, 0, 64) / 448);
    for (int64_t column = 0; column < 128; ++column)
      m.put(row, column, static_cast<float>(m.wanted.at(row, column).exact / static_cast<double>(m.scale(row, 0))));
  });
}

TEST(Quantised, SeesElementsThatAreNotSaturated) {
  expect_caught("got nan", [](Quantised& m) {
    for (int64_t column = 0; column < 128; ++column)
      if (std::abs(m.element(7, column)) == 448) *m.at(7, column) |= std::byte{0x7f};
  });
}

TEST(Quantised, SeesOneElementOfTheNextValue) {
  expect_caught("1 of 7680 elements", [](Quantised& m) {
    int64_t column = 0;
    while (std::abs(m.element(11, column)) < 16) ++column;
    *m.at(11, column) = static_cast<std::byte>(static_cast<int>(*m.at(11, column)) - 2);
  });
}

TEST(Quantised, SeesWhatIsNotWrittenAndWhatMustNotBe) {
  expect_caught("expert 3, row 20, column 1", [](Quantised& m) { std::memset(&m.scale(47, 1), 0xff, 4); });
  expect_caught("bytes were written after the end of y_scales", [](Quantised& m) { m.scale(48, 0) = 1; });
  expect_caught(
      "elements were written in rows of other ranks",
      [](Quantised& m) {
        int64_t row = 0;
        while (!std::isnan(m.scale(row, 0))) ++row;
        m.scale(row, 0) = 1;
      },
      quantised({.by_slot = true, .activation = Activation::silu}, 4));
}

}  // namespace
}  // namespace moetune
