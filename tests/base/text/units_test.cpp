// Quantities as people write them, and what is refused.
#include "base/text/units.h"

#include <gtest/gtest.h>

#include <cmath>

#include "error_of.h"

namespace moetune {
namespace {

using Integers = std::vector<int64_t>;

std::string integers_error(std::string_view text) {
  return error_of([&] { parse_integers(text, "--tokens", 1, 100000); }).what;
}
Integers tokens(std::string_view text) { return parse_integers(text, "--tokens", 1, 100000); }

TEST(Units, ADurationOfMoreThanAYearIsRefused) {
  EXPECT_EQ(error_of([] { parse_duration("9999999h"); }).what, "'9999999h' is longer than a year");
  EXPECT_EQ(error_of([] { parse_duration("1e99h"); }).what, "'1e99h' is longer than a year");
  EXPECT_DOUBLE_EQ(parse_duration("8784h"), 366.0 * 24 * 3600);
}

TEST(Units, SharesArePercentOrRatios) {
  EXPECT_DOUBLE_EQ(parse_share("5%", "--x"), 0.05);
  EXPECT_DOUBLE_EQ(parse_share("0.05", "--x"), 0.05);
  EXPECT_DOUBLE_EQ(parse_share("100%", "--x"), 1);
  EXPECT_EQ(error_of([] { parse_share("0%", "--x"); }).what, "--x: 0% is not above 0% and up to 100%");
  EXPECT_EQ(error_of([] { parse_share("5", "--x"); }).hint, "write it as 5% or 0.05");
  EXPECT_EQ(error_of([] { parse_share("%", "--x"); }).exit, Exit::request);
}

TEST(FormatTime, ChangesUnits) {
  EXPECT_EQ(format_time(12.34e-6), "12.3 µs");
  EXPECT_EQ(format_time(4.56e-3), "4.56 ms");
  EXPECT_EQ(format_time(7.84), "7.8 s");
  EXPECT_EQ(format_time(200), "3 min 20 s");
  EXPECT_EQ(format_time(7500), "2 h 5 min");
  EXPECT_EQ(format_time(std::nan("")), "?");
}
TEST(FormatTime, NeverShowsFourDigitsBeforeTheNextUnit) {
  EXPECT_EQ(format_time(999.6e-6), "1.00 ms");
  EXPECT_EQ(format_time(0.9996), "1.0 s");
  EXPECT_EQ(format_time(999.4e-6), "999 µs");
}
TEST(FormatBytes, UsesPowersOfTen) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.88e9), "1.88 GB");
  EXPECT_EQ(format_bytes(999.6), "1.00 kB");
  EXPECT_EQ(format_bytes(1e18), "1000 PB");
}
TEST(ParseNumber, WantsAFiniteNumberAlone) {
  EXPECT_EQ(parse_number("-1.5e3", "x"), -1500);
  for (const char* text : {"", "1x", " 1", "nan", "inf", "1e999", "0x10"})
    EXPECT_EQ(error_of([&] { parse_number(text, "--x"); }).what, std::string("--x: '") + text + "' is not a number");
}
TEST(ParseInteger, NamesTheRange) {
  EXPECT_EQ(parse_integer("16", "x", 1, 16), 16);
  EXPECT_EQ(error_of([] { parse_integer("17", "--n", 1, 16); }).what, "--n: 17 is outside 1 to 16");
  EXPECT_EQ(error_of([] { parse_integer("99999999999999999999", "--n", 1, 16); }).what,
            "--n: 99999999999999999999 is outside 1 to 16");
  EXPECT_EQ(error_of([] { parse_integer("1.5", "--n", 1, 16); }).what, "--n: '1.5' is not a whole number");
  EXPECT_EQ(error_of([] { parse_integer("", "--n", 1, 16); }).what, "--n: '' is not a whole number");
}

TEST(ParseDuration, TakesUnitsAndTheirSums) {
  EXPECT_DOUBLE_EQ(parse_duration("90s"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("5m"), 300);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("250ms"), 0.25);
  EXPECT_DOUBLE_EQ(parse_duration("45"), 45);
  EXPECT_DOUBLE_EQ(parse_duration("1.5min"), 90);
}
TEST(ParseDuration, RefusesNonsenseZeroAndNegatives) {
  for (const char* text : {"", "s", "90x", "0", "0s", "-5s", "1e999s", "5m x"}) {
    const Caught error = error_of([&] { parse_duration(text); });
    EXPECT_EQ(error.what, std::string("'") + text + "' is not a duration");
    EXPECT_EQ(error.exit, Exit::request);
  }
}

TEST(ParseDuration, TakesZeroWhereThatMeansSomething) {
  EXPECT_EQ(parse_duration("0", /*may_be_zero=*/true), 0);
  EXPECT_EQ(parse_duration("0s", /*may_be_zero=*/true), 0);
  for (const char* text : {"", "s", "-5s"})
    EXPECT_EQ(error_of([&] { parse_duration(text, /*may_be_zero=*/true); }).what,
              std::string("'") + text + "' is not a duration");
}

TEST(Split, KeepsEmptyPiecesAndTrims) {
  EXPECT_EQ(split(" a, b ,,c,", ','), (std::vector<std::string>{"a", "b", "", "c", ""}));
  EXPECT_TRUE(split("", ',').empty());
  EXPECT_EQ(split("a", ','), std::vector<std::string>{"a"});
}

TEST(ParseIntegers, TakesListsRangesStepsAndFactors) {
  EXPECT_EQ(tokens("1,16,64-4096*4"), (Integers{1, 16, 64, 256, 1024, 4096}));
  EXPECT_EQ(tokens("1-4"), (Integers{1, 2, 3, 4}));
  EXPECT_EQ(tokens("1-9+4"), (Integers{1, 5, 9}));
  EXPECT_EQ(tokens("1-8+4"), (Integers{1, 5}));
  EXPECT_EQ(tokens("3-100*10"), (Integers{3, 30}));
}
TEST(ParseIntegers, DropsDuplicatesAndKeepsTheOrder) { EXPECT_EQ(tokens("16,1,16,1-2"), (Integers{16, 1, 2})); }
TEST(ParseIntegers, SaysWhatIsWrong) {
  EXPECT_EQ(integers_error(""), "--tokens: the list is empty");
  EXPECT_EQ(integers_error("1,,2"), "--tokens: the list '1,,2' has an empty value");
  EXPECT_EQ(integers_error("0"), "--tokens: 0 is outside 1 to 100000");
  EXPECT_EQ(integers_error("-5"), "--tokens: -5 is outside 1 to 100000");
  EXPECT_EQ(integers_error("8-4"), "--tokens: the range '8-4' ends before it begins");
  EXPECT_EQ(integers_error("1-4*1"), "--tokens: 1 is outside 2 to 100000");
  EXPECT_EQ(integers_error("1-4+0"), "--tokens: 0 is outside 1 to 100000");
  EXPECT_EQ(integers_error("1-20000"), "--tokens: '1-20000' has over 10000 values");
  EXPECT_EQ(error_of([] { parse_integers("0-8*2", "--x", 0, 9); }).what,
            "--x: the range '0-8*2' multiplies, so it must begin at 1 or more");
}
TEST(ParseIntegers, DoesNotOverflowAtTheTop) {
  const int64_t top = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(parse_integers("4611686018427387904-9223372036854775807*2", "x", 1, top).size(), 1u);
  EXPECT_EQ(parse_integers("9223372036854775806-9223372036854775807", "x", 1, top), (Integers{top - 1, top}));
}

}  // namespace
}  // namespace moetune
