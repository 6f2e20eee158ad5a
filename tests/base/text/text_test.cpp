// What may be shown as it is, and what is escaped.
#include "base/text/text.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Printable, LeavesTextAlone) {
  for (const char* text : {"", "plain", "µs ± 1.2 %", "中文", "a\nb\tc", "\xf0\x9f\x98\x80", "\\x1b"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\r"), "a\\x1b[31mb\\x07\\x0d");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\u007f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u009b");  // CSI in one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");  // right-to-left override
  EXPECT_EQ(printable("\xef\xbb\xbf"), "\\ufeff");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("a\xc3"), "a\\xc3");                           // cut off
  EXPECT_EQ(printable("\xc3(\xa9"), "\\xc3(\\xa9");                  // no continuation, then one alone
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST(Printable, NamesHoldNoLineBreaks) {
  EXPECT_TRUE(is_printable("layers.0 µ"));
  EXPECT_FALSE(is_printable("a\nb"));
  EXPECT_FALSE(is_printable("a\tb"));
  EXPECT_FALSE(is_printable("a\x1b"));
}

TEST(SomeOf, NamesEachWordOnceAndCountsTheOthers) {
  EXPECT_EQ(some_of({}, 2), "");
  EXPECT_EQ(some_of({"a", "b", "a"}, 2), "a, b");
  EXPECT_EQ(some_of({"a", "b", "a", "c", "d"}, 2), "a, b and 2 more");
}

}  // namespace
}  // namespace moetune
