#include "runtime/formula.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

const Sizes kSizes = {{"rows", 100}, {"n", 1000}, {"held", 132}, {"x_1", -7}};

std::int64_t value(std::string_view text) { return Formula::evaluate(text, kSizes); }

std::string error(std::string_view text) {
  try {
    return "no error, but " + std::to_string(value(text));
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
}

TEST(Formula, HasTheUsualPrecedence) {
  EXPECT_EQ(value("2 + 3 * 4 - 5"), 9);
  EXPECT_EQ(value("(2 + 3) * 4"), 20);
  EXPECT_EQ(value("100 / 7 * 7 + 100 % 7"), 100);
  EXPECT_EQ(value(" rows*2 "), 200);
  EXPECT_EQ(value("min(max(rows / 16 + 8, 1) * ceil_div(n, 128), held)"), 112);
}

TEST(Formula, DividesTowardsZeroAndCeilDivUp) {
  EXPECT_EQ(value("x_1 / 2"), -3);
  EXPECT_EQ(value("x_1 % 2"), -1);
  EXPECT_EQ(value("ceil_div(7, 2)"), 4);
  EXPECT_EQ(value("ceil_div(8, 2)"), 4);
  EXPECT_EQ(value("ceil_div(0, 2)"), 0);
}

TEST(Formula, WrapsAt64Bits) {
  EXPECT_EQ(value("9223372036854775807 + 1"), INT64_MIN);
  EXPECT_EQ(value("4611686018427387904 * 4"), 0);
}

TEST(Formula, NamesTheColumnOfAFault) {
  EXPECT_EQ(error("rows +"), "formula 'rows +', column 7: expected a number, a name or '('");
  EXPECT_EQ(error("rows 2"), "formula 'rows 2', column 6: expected an operator");
  EXPECT_EQ(error("2 * cols"), "formula '2 * cols', column 5: unknown name 'cols'");
  EXPECT_EQ(error("abs(1)"), "formula 'abs(1)', column 1: unknown function 'abs'");
  EXPECT_EQ(error("min(1)"), "formula 'min(1)', column 6: expected ','");
  EXPECT_EQ(error("1 / (rows - 100)"), "formula '1 / (rows - 100)', column 17: division by zero");
  EXPECT_EQ(error("9223372036854775808"), "formula '9223372036854775808', column 19: the number is too large");
  EXPECT_EQ(error(""), "formula '', column 1: expected a number, a name or '('");
}

}  // namespace
}  // namespace moetune
